"""The operator's commands on the balancer: look at it, pause or resume a frontend, and pause, resume, disable,
enable or weigh a backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
import structlog

from holdfast.balancer.commands.announce_status import outlook
from holdfast.balancer.commands.trace_flow import trace
from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.health import HealthEvent, HealthState, InvalidEvent, Signal, step
from holdfast.balancer.intents import IntentStore
from holdfast.balancer.reconciler import NAME, VipReconciler
from holdfast.balancer.vip import VipKey
from holdfast.config.schema.scalars import duration
from holdfast.model.base.time import Instant
from holdfast.model.control.intent import Intent, IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile import Pause
from holdfast.reconcile import PauseGate as Gate
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.decision_log import Decision, DecisionLog

log = structlog.get_logger(__name__)

T = TypeVar("T")

_ENDED = {"resume": (HealthEvent.RESUME, IntentKind.PAUSE), "enable": (HealthEvent.ENABLE, IntentKind.DISABLE)}
_BEGUN = {"pause": (HealthEvent.PAUSE, IntentKind.PAUSE), "disable": (HealthEvent.DISABLE, IntentKind.DISABLE)}
_STATES = {IntentKind.PAUSE: HealthState.PAUSED, IntentKind.DISABLE: HealthState.DISABLED}
_DONE = {
    "pause": "gets no new flows; its established ones go on",
    "disable": "gets no new flows, and its established ones are ended",
    "resume": "is probed again, and serves as soon as it passes",
    "enable": "is probed again, and serves as soon as it passes",
    "weight": "has weight",
}


class BalancerCommands:
    def __init__(self, keeper: VipReconciler, wishes: IntentStore, clock: Clock, decisions: DecisionLog) -> None:
        self._keeper = keeper
        self._wishes = wishes
        self._clock = clock
        self._decisions = decisions

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "balancer": self._status,
            "moves": self._plan,
            "explain": self._explain,
            "flow": self._flow,
            "traffic": self._traffic,
            "outlook": self._outlook,
            "backend": self._backend,
            "frontend": self._frontend,
        }

    def take_effect(self) -> None:
        """What is kept is what is wanted: now, and after every start."""
        now, wall, balancer = self._clock.now(), self._clock.wall(), self._keeper.balancer
        touched = balancer.intend(self._wishes.all(), wall, now)
        self._keeper.pauses.paused = {name: _gate(one, wall, now) for name, one in balancer.pauses.items()}
        self._keeper.touch(touched)

    async def _status(self, _request: Request, _who: Who) -> Any:
        return self._view().status()

    async def _plan(self, _request: Request, _who: Who) -> Any:
        return self._view().plan()

    async def _outlook(self, request: Request, _who: Who) -> Any:
        """For the announcer, which tells in return what is announced."""
        farewell, now = self._keeper.farewell, self._clock.now()
        farewell.hear(request.args.get("announced") or (), request.args.get("why") or {}, now)
        told = outlook(self._keeper, now)
        farewell.hinted = frozenset(stand.address for stand in told.stands)
        return msgspec.to_builtins(told)

    async def _explain(self, request: Request, _who: Who) -> Any:
        kind, name = str(request.args.get("kind")), str(request.args.get("name"))
        roster = self._keeper.balancer.roster
        if kind == "backend":
            return self._view().explain_backend(_known(roster.backends, kind, name))
        if kind == "frontend":
            return self._view().explain_frontend(_known(roster.frontends, kind, name))
        raise Declined(f"the balancer cannot explain {kind!r}; it knows backend and frontend")

    async def _flow(self, request: Request, _who: Who) -> Any:
        return await trace(self._keeper, str(request.args.get("source")), str(request.args.get("to")))

    async def _traffic(self, _request: Request, _who: Who) -> Any:
        """What has passed to each backend until now."""
        await self._keeper.meter.measure(self._keeper.balancer.roster)
        return [
            {"frontend": frontend, "backend": backend, **dataclasses.asdict(passed)}
            for (frontend, backend), passed in sorted(self._keeper.meter.passed.items())
        ]

    async def _backend(self, request: Request, who: Who) -> str:
        do, name = str(request.args.get("do")), str(request.args.get("name"))
        backend = _known(self._keeper.balancer.roster.backends, "backend", name)
        if do in _BEGUN:
            said = await self._begin(do, name, request, who)
        elif do in _ENDED:
            if do == "enable" and not backend.enabled:
                raise Declined(f"{name} is disabled in the configuration: set enabled: true there")
            said = await self._end(do, name)
        elif do == "weight":
            said = await self._weigh(name, request, who)
        else:
            raise Declined(f"a backend can be told {', '.join(_DONE)}; not {do!r}")
        return self._done(do, Scope(ScopeKind.BACKEND, name), said, request, who)

    async def _frontend(self, request: Request, who: Who) -> str:
        do, name = str(request.args.get("do")), str(request.args.get("name"))
        scope, paused = Scope(ScopeKind.FRONTEND, name), self._keeper.balancer.pauses
        if do == "pause":
            _known(self._keeper.balancer.roster.frontends, "frontend", name)
            intent = self._intent(IntentKind.PAUSE, scope, request, who)
            await self._wishes.keep(intent)
            said = f"stays as it is programmed now{_until(intent)}, whatever its backends do"
        elif do == "resume":
            if name not in paused:
                known = ", ".join(sorted(paused)) or "none"
                raise Declined(f"frontend {name!r} is not paused; paused are: {known}")
            await self._wishes.drop((IntentName(IntentKind.PAUSE, scope),))
            said = "follows its backends again"
        else:
            raise Declined(f"a frontend can be told pause and resume; not {do!r}")
        return self._done(do, scope, said, request, who)

    def _done(self, do: str, scope: Scope, said: str, request: Request, who: Who) -> str:
        """It is kept: now it takes effect, and whoever asks later can read who wanted it."""
        self._tell(do, scope, f"{who.name}: {scope.name} {said}", str(request.args.get("reason") or ""))
        self.take_effect()
        self._keeper.reloaded()
        return f"{scope.name} {said}"

    async def _begin(self, do: str, name: str, request: Request, who: Who) -> str:
        event, what = _BEGUN[do]
        state = self._keeper.balancer.health[name].state
        if state is not _STATES[what]:  # asking again renews who, why and until when
            self._possible(name, event)
        intent = self._intent(what, Scope(ScopeKind.BACKEND, name), request, who)
        await self._wishes.keep(intent, instead_of=(_name(IntentKind.PAUSE, name), _name(IntentKind.DISABLE, name)))
        return _DONE[do] + _until(intent)

    async def _end(self, do: str, name: str) -> str:
        event, what = _ENDED[do]
        self._possible(name, event)
        await self._wishes.drop((_name(what, name),))
        return _DONE[do]

    async def _weigh(self, name: str, request: Request, who: Who) -> str:
        weight = request.args.get("weight")
        if weight is None:
            await self._wishes.drop((_name(IntentKind.WEIGHT, name),))
            return "has its configured weight again"
        if not isinstance(weight, int) or not 0 <= weight <= 100:
            raise Declined("a weight is a whole number from 0 to 100")
        intent = self._intent(IntentKind.WEIGHT, Scope(ScopeKind.BACKEND, name), request, who, weight)
        await self._wishes.keep(intent)
        return f"{_DONE['weight']} {weight}{_until(intent)}"

    def _possible(self, name: str, event: HealthEvent) -> None:
        """B10: what makes no sense is refused before it is written down."""
        try:
            step(self._keeper.balancer.health[name], Signal(event, ""), self._clock.now())
        except InvalidEvent as sentence:
            raise Declined(f"{name}: {sentence}") from sentence

    def _intent(self, what: IntentKind, scope: Scope, request: Request, who: Who, weight: int | None = None) -> Intent:
        why, within = request.args.get("reason"), request.args.get("for")
        if not isinstance(why, str) or not why.strip():
            raise Declined("a reason is needed: --reason says why, to whoever reads this at night")
        wall = self._clock.wall()
        try:
            until = None if within is None else wall + duration(str(within))
        except (ValueError, OverflowError) as error:
            raise Declined(f"--for {within}: {error}") from error
        return Intent(what=what, scope=scope, who=who.name, why=why.strip(), since=wall, until=until, weight=weight)

    def _tell(self, do: str, scope: Scope, sentence: str, why: str) -> None:
        said = f"{sentence}: “{why}”" if why else sentence
        log.info(said)
        kind = scope.target.value
        self._decisions.write([Decision(self._clock.wall(), NAME, do, f"{kind}/{scope.name}", "asked", said, kind)])

    def _view(self) -> BalancerViews:
        return BalancerViews(self._keeper, self._clock.now())


def _known(things: Mapping[str, T], kind: str, name: str) -> T:
    if name not in things:
        near = get_close_matches(name, things, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {len(things)}: holdfast balancer status"
        raise Declined(f"there is no {kind} {name!r}; {hint}")
    return things[name]


def _name(what: IntentKind, name: str) -> IntentName:
    return IntentName(what, Scope(ScopeKind.BACKEND, name))


def _gate(intent: Intent, wall: datetime, now: Instant) -> Gate[VipKey]:
    """The gate that holds what this intent pauses; wall-clock times of this machine become times of its boot clock."""
    until = None if intent.until is None else now + (intent.until - wall)
    return Gate(str(intent.scope), pause=Pause(intent.who, intent.why, now - (wall - intent.since), until))


def _until(intent: Intent) -> str:
    return "" if intent.until is None else f" until {intent.until:%H:%M:%SZ}"
