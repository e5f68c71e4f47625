"""Commands of the VIP worker: show its state; pause and resume a frontend; pause, resume, disable, enable and set the
weight of a backend; set the weight of a pool."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
import structlog

from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.announce.worker import ANNOUNCE_INPUT
from holdfast.balancer.commands.announce_status import announce_input
from holdfast.balancer.commands.buckets import bucket_counts, programmed_table
from holdfast.balancer.commands.shares import shares_of
from holdfast.balancer.commands.trace_flow import trace
from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.dataplane.api import SharesBuckets
from holdfast.balancer.health import HealthEvent, HealthState, InvalidEvent, Signal, step
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.vip import shown
from holdfast.model.control.intent import Intent, IntentKind, IntentName
from holdfast.model.control.scope import FLEET, Scope, ScopeKind
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.store import IntentStore, request_intent

log = structlog.get_logger(__name__)

T = TypeVar("T")

_ENDS = {"resume": (HealthEvent.RESUME, IntentKind.PAUSE), "enable": (HealthEvent.ENABLE, IntentKind.DISABLE)}
_BEGINS = {"pause": (HealthEvent.PAUSE, IntentKind.PAUSE), "disable": (HealthEvent.DISABLE, IntentKind.DISABLE)}
_STATES = {IntentKind.PAUSE: HealthState.PAUSED, IntentKind.DISABLE: HealthState.DISABLED}
_WHERE = {ScopeKind.MEMBER: " in frontend {0}", ScopeKind.POOL: " in pool {1}"}
_DONE = {
    "pause": "gets no new flows; established flows continue",
    "disable": "gets no new flows, and established flows are ended",
    "resume": "is probed again, and serves as soon as it passes",
    "enable": "is probed again, and serves as soon as it passes",
    "weight": "has weight",
}


class BalancerCommands:
    def __init__(
        self,
        reconciler: VipReconciler,
        intents: IntentStore,
        context: Context,
        store_problem: Callable[[], str] = str,
        own_intents: Callable[[], Iterable[Intent]] = tuple,
    ) -> None:
        """`intents` has those about frontends and backends, `own_intents` returns others of this machine.
        `store_problem` says why the store is not taken as it is; empty while it is."""
        self._reconciler = reconciler
        self._intents = intents
        self._clock = context.clock
        self._decisions = context.decisions
        self.applied = AppliedIntents(
            context, reconciler.loop, reconciler.pause_gate, lambda: (*own_intents(), *intents.all())
        )
        self._store_problem = store_problem

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "balancer": self._status,
            "moves": self._plan,
            "explain": self._explain,
            "flow": self._flow,
            "traffic": self._traffic,
            "buckets": self._buckets,
            ANNOUNCE_INPUT: self._announce_input,
            "backend": self._backend,
            "frontend": self._frontend,
            "pool": self._pool,
        }

    def apply_intents(self) -> None:
        """Apply the stored intents; called after every start and every change."""
        now, wall, balancer = self._clock.now(), self._clock.wall(), self._reconciler.balancer
        self.applied.apply()
        self._reconciler.touch(balancer.apply_intents(self.applied.holding, wall, now))

    async def _status(self, _request: Request, _who: Who) -> Any:
        return self._view().status(self._store_problem())

    async def _plan(self, _request: Request, _who: Who) -> Any:
        return await self._view().plan()

    async def _buckets(self, request: Request, _who: Who) -> Any:
        """Number of buckets per backend of every frontend; of the named one, the whole table."""
        services, name, target = (
            self._reconciler.balancer.services,
            request.args.get("frontend"),
            self._reconciler.target,
        )
        if not isinstance(self._reconciler.dataplane, SharesBuckets):
            if name is None:
                return await bucket_counts(target, services.frontends.values())
            frontend = _find(services.frontends, "frontend", str(name))
            return await programmed_table(target, frontend, self._reconciler.balancer.names_in(frontend))
        if name is not None:
            raise Declined("the dataplane makes its own bucket table and does not show it")
        shares = await shares_of(self._reconciler, [one.vip for one in services.frontends.values()])
        counts: dict[str, dict[str, int]] = {one.name: {} for one in services.frontends.values()}
        for key, (count, _) in shares.items():
            if (at := services.at.get(key.vip)) is not None:
                counts[at.name][shown(key.backend)] = count
        return counts

    async def _announce_input(self, request: Request, _who: Who) -> Any:
        """Answer the announcer, whose request reports what is announced."""
        gate, now = self._reconciler.announced_gate, self._clock.now()
        gate.on_report(request.args.get("announced") or (), request.args.get("outstanding") or {}, now)
        fleet = tuple(one for one in self.applied.holding if one.scope == FLEET)
        answer = msgspec.structs.replace(announce_input(self._reconciler, now), pauses=fleet)
        gate.on_answer(one.address for one in answer.frontends)
        return msgspec.to_builtins(answer)

    async def _explain(self, request: Request, _who: Who) -> Any:
        kind, name = str(request.args.get("kind")), str(request.args.get("name"))
        services = self._reconciler.balancer.services
        if kind == "backend":
            backend = _find(services.backends, kind, name)
            users = [services.frontends[each].vip for each in services.users[name]]
            return self._view().explain_backend(backend, await shares_of(self._reconciler, users))
        if kind == "frontend":
            frontend = _find(services.frontends, kind, name)
            return self._view().explain_frontend(frontend, await shares_of(self._reconciler, [frontend.vip]))
        raise Declined(f"the balancer cannot explain {kind!r}, only backend and frontend")

    async def _flow(self, request: Request, _who: Who) -> Any:
        return await trace(self._reconciler, str(request.args.get("source")), str(request.args.get("to")))

    async def _traffic(self, _request: Request, _who: Who) -> Any:
        """Traffic of each backend so far."""
        await self._reconciler.measure_traffic()
        return [
            {"frontend": frontend, "backend": backend, **dataclasses.asdict(passed)}
            for (frontend, backend), passed in sorted(self._reconciler.meter.passed.items())
        ]

    async def _backend(self, request: Request, who: Who) -> str:
        do, name = str(request.args.get("do")), str(request.args.get("name"))
        backend = _find(self._reconciler.balancer.services.backends, "backend", name)
        if do in _BEGINS:
            result = await self._begin(do, name, request, who)
        elif do in _ENDS:
            if do == "enable" and not backend.enabled:
                raise Declined(f"{name} is disabled in the configuration: set enabled: true there")
            result = await self._end(do, name, who)
        elif do == "weight":
            result = await self._set_weight(self._weight_scope(name, request), request, who)
        else:
            raise Declined(f"{do!r} is not a command for a backend; there are: {', '.join(_DONE)}")
        return self._done(do, Scope(ScopeKind.BACKEND, name), result, request, who)

    async def _frontend(self, request: Request, who: Who) -> str:
        do, name = str(request.args.get("do")), str(request.args.get("name"))
        scope, paused = Scope(ScopeKind.FRONTEND, name), self._reconciler.balancer.pauses
        if do == "pause":
            _find(self._reconciler.balancer.services.frontends, "frontend", name)
            intent = self._intent(IntentKind.PAUSE, scope, request, who)
            await self._intents.keep(intent)
            result = f"stays as it is programmed now{intent.lasting}, whatever its backends do"
        elif do == "resume":
            if name not in paused:
                known = ", ".join(sorted(paused)) or "none"
                raise Declined(f"frontend {name!r} is not paused; paused are: {known}")
            await self._intents.drop([IntentName(IntentKind.PAUSE, scope)], who.name)
            result = "follows its backends again"
        else:
            raise Declined(f"{do!r} is not a command for a frontend; there are: pause, resume")
        return self._done(do, scope, result, request, who)

    async def _pool(self, request: Request, who: Who) -> str:
        do, name = str(request.args.get("do")), str(request.args.get("name"))
        frontends = self._reconciler.balancer.services.frontends
        frontend = _find(frontends, "frontend", str(request.args.get("frontend")))
        index = frontend.pool_index(name)
        if index is None:
            known = ", ".join(frontend.pool_names) or "none"
            raise Declined(f"frontend {frontend.name} has no pool {name!r}; its pools are: {known}")
        if do != "weight":
            raise Declined(f"{do!r} is not a command for a pool; there is: weight")
        result = await self._set_weight(Scope.pool(frontend.name, frontend.pool_names[index]), request, who)
        return self._done(do, Scope(ScopeKind.FRONTEND, frontend.name), result, request, who)

    def _done(self, do: str, scope: Scope, result: str, request: Request, who: Who) -> str:
        """Apply an intent that was stored, and record who asked for it."""
        self._record(do, scope, f"{who.name}: {scope.name} {result}", str(request.args.get("reason") or ""))
        self.apply_intents()
        self._reconciler.reloaded()
        return f"{scope.name} {result}"

    async def _begin(self, do: str, name: str, request: Request, who: Who) -> str:
        event, what = _BEGINS[do]
        state = self._reconciler.balancer.health[name].state
        if state is not _STATES[what]:  # a repeated request renews operator, reason and expiry
            self._check_possible(name, event)
        intent = self._intent(what, Scope(ScopeKind.BACKEND, name), request, who)
        await self._intents.keep(intent, instead_of=(_name(IntentKind.PAUSE, name), _name(IntentKind.DISABLE, name)))
        return _DONE[do] + intent.lasting

    async def _end(self, do: str, name: str, who: Who) -> str:
        event, what = _ENDS[do]
        self._check_possible(name, event)
        await self._intents.drop([_name(what, name)], who.name)
        return _DONE[do]

    def _weight_scope(self, name: str, request: Request) -> Scope:
        """Scope of a weight: the backend, or its share in one frontend alone."""
        frontend = request.args.get("frontend")
        if frontend is None:
            return Scope(ScopeKind.BACKEND, name)
        services = self._reconciler.balancer.services
        found = _find(services.frontends, "frontend", str(frontend))
        configured = services.backends[name].configured
        if configured not in {services.backends[each].configured for each in found.backends()}:
            raise Declined(f"{name} is in no pool of frontend {found.name}")
        return Scope.member(found.name, configured)

    async def _set_weight(self, scope: Scope, request: Request, who: Who) -> str:
        weight = request.args.get("weight")
        where = _WHERE.get(scope.target, "").format(*scope.pair)
        if weight is None:
            await self._intents.drop([IntentName(IntentKind.WEIGHT, scope)], who.name)
            return f"has its configured weight again{where}"
        if not isinstance(weight, int) or not 0 <= weight <= 100:
            raise Declined("a weight is a whole number from 0 to 100")
        intent = self._intent(IntentKind.WEIGHT, scope, request, who, weight)
        await self._intents.keep(intent)
        return f"{_DONE['weight']} {weight}{where}{intent.lasting}"

    def _check_possible(self, name: str, event: HealthEvent) -> None:
        """Refuse what the state of the backend does not allow, before it is stored (protection: B10)."""
        try:
            step(self._reconciler.balancer.health[name], Signal(event, ""), self._clock.now())
        except InvalidEvent as sentence:
            raise Declined(f"{name}: {sentence}") from sentence

    def _intent(self, what: IntentKind, scope: Scope, request: Request, who: Who, weight: int | None = None) -> Intent:
        return request_intent(request, who, self._clock, what, scope, weight)

    def _record(self, do: str, scope: Scope, sentence: str, why: str) -> None:
        sentence = f"{sentence}: “{why}”" if why else sentence
        kind = scope.target.value
        key = f"{kind}/{scope.name}"
        log.info("operator command", command=do, target=key, result=sentence)
        self._decisions.write([Decision(self._clock.wall(), VIPS_WORKER, do, key, "asked", sentence, kind)])

    def _view(self) -> BalancerViews:
        return BalancerViews(self._reconciler, self._clock.now())


def _find(things: Mapping[str, T], kind: str, name: str) -> T:
    if name not in things:
        near = get_close_matches(name, things, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {len(things)}: holdfast balancer status"
        raise Declined(f"there is no {kind} {name!r}; {hint}")
    return things[name]


def _name(what: IntentKind, name: str) -> IntentName:
    return IntentName(what, Scope(ScopeKind.BACKEND, name))
