"""State of the balancer: services, health, slow starts, intents and warm-up, and how reports and reloads change it.

No IO and no clock. Every method that can change the desired state returns the frontends to compare again: all that use
the backend in question (B17). The desired state of a frontend is computed once, when it is first read, and again after
each of its events or when time changes it; a frontend that is gone by then is not wanted (B16).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.balancer.desired import slow_start
from holdfast.balancer.desired.adopted import AdoptedEntries
from holdfast.balancer.desired.fail_back import PoolMemory
from holdfast.balancer.desired.frontend import DesiredFrontend, Inputs, asked_weight, desired
from holdfast.balancer.desired.leaving import LeavingBackends
from holdfast.balancer.desired.reachability import Reachability
from holdfast.balancer.health import Health, HealthEvent, HealthState, HealthThresholds, Signal, step
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.probing.messages import (
    REPORT_EVERY,
    Assignment,
    ProbeCode,
    ProbeInterval,
    ProbeReport,
    ProbeResult,
    TargetSpec,
)
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend, Services, carry_over
from holdfast.balancer.vip import BackendEntry, Canonical, Value, Vip, VipKey, as_wanted
from holdfast.balancer.warm_up import Trigger, WarmUp
from holdfast.model.base.time import Instant
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import ScopeKind

_ABOUT_BACKENDS = (ScopeKind.BACKEND, ScopeKind.MEMBER, ScopeKind.POOL)
_HOLDS = {IntentKind.PAUSE: HealthState.PAUSED, IntentKind.DISABLE: HealthState.DISABLED}
_ENTERS = {HealthState.PAUSED: HealthEvent.PAUSE, HealthState.DISABLED: HealthEvent.DISABLE}
_LEAVES = {HealthState.PAUSED: HealthEvent.RESUME, HealthState.DISABLED: HealthEvent.ENABLE}


@dataclass(frozen=True, slots=True)
class HealthTransition:
    """One change of a backend's state."""

    at: Instant
    backend: str
    old: HealthState
    new: HealthState
    why: str


@dataclass(frozen=True, slots=True)
class FrontendState:
    """Knowledge about the backends of one frontend, as the gates need it: each as the dataplane knows it."""

    name: str
    unknown: frozenset[BackendId] = frozenset()
    held: frozenset[BackendId] = frozenset()
    """Backends that an operator paused or disabled."""
    known: bool = True
    """True if any backend has a real state. Backends held by an operator say nothing about the others."""
    members: frozenset[BackendId] = frozenset()
    """All configured backends."""
    weights: Mapping[BackendId, int] = field(default_factory=dict)
    """Weights that an operator set."""


class BalancerState:
    """Everything that decides what the dataplane should hold."""

    def __init__(self, services: Services, warm: WarmUp, *, history: int = 20) -> None:
        now = warm.started
        self.canonical: Canonical = as_wanted
        """Form of the objects in the dataplane; the reconciler, which knows the dataplane, sets it."""
        self.services = services
        self.warm = warm
        self.intents: tuple[Intent, ...] = ()
        """Operator intents about backends: everywhere, in one frontend, or in one pool."""
        self.pauses: Mapping[str, Intent] = {}
        """Frontends that an operator paused; what is programmed for them stays as it is."""
        self.history: dict[str, deque[HealthTransition]] = {}
        self.unlogged: list[HealthTransition] = []
        """Transitions that the reconciler has not logged yet."""
        self._changed_intervals: dict[str, ProbeInterval] = {}
        """Targets whose interval has changed, until the reconciler sends them to the prober."""
        self.reachability = Reachability()
        self.probe_errors: dict[str, dict[str, str]] = {}
        """Last error of each check whose last probe did not pass, by backend; also errors that change no health."""
        self.has_results = False
        """True once the prober has delivered a result since the start."""
        # Until the dataplane has been read, every backend may be one that it serves with (B25).
        self.health: dict[str, Health] = carry_over(Services(), services, {}, lambda _: True, now)
        self._history_length = history
        self._adopted = AdoptedEntries()
        self._unprobed = set(services.backends)
        self._leaving = LeavingBackends(warm.max_delay)
        self._pools: dict[Vip, PoolMemory] = {}
        """Pools that served and failed before, of frontends with a fail-back delay."""
        self._joins: dict[BackendId, Instant] = {}
        """When backends that were never up join the base table, at the latest."""
        self._ramps: dict[tuple[str, str], Instant] = {}
        self._weights: dict[tuple[str, str], int] = {}
        self._desired: dict[str, DesiredFrontend] = {}
        """Desired state of each frontend since its last event."""
        self._states: dict[Vip, FrontendState] = {}
        self._elapsed: set[str] = set()
        """Frontends that time has changed since `due` was last asked."""
        self._plan_joins(now)

    def adopt(self, objects: Mapping[VipKey, Value]) -> None:
        """Start from what the dataplane holds at the start of the process."""
        self._leaving.adopt(objects)
        wanted = {
            VipKey(frontend.vip, self._known_as(frontend, one)): VipKey(frontend.vip, one)
            for frontend in self.services.frontends.values()
            for one in (self.services.backends[name].identity for name in frontend.backends())
        }
        self._adopted = AdoptedEntries.of(
            {wanted.get(key, key): one for key, one in objects.items() if isinstance(one, BackendEntry)}
        )
        self._forget(self.services.frontends)
        self._pools = {
            frontend.vip: one
            for frontend in self.services.frontends.values()
            if (one := self._adopted.pool(frontend, self.services.backends))
        }
        for key, entry in self._adopted.entries.items():
            if entry.base:
                self._joins.pop(key.backend, None)
        for name, backend in self.services.backends.items():
            if name in self._unprobed and not self._adopted.is_serving(backend):
                counts = {check: replace(count, careful=False) for check, count in self.health[name].counts.items()}
                self.health[name] = replace(self.health[name], counts=counts)

    def on_programmed(self, changes: Iterable[tuple[VipKey, Value | None]], now: Instant) -> set[str]:
        """Take what was written to the dataplane; None: deleted. From now on, backends that have left stay for a moment
        with weight 0."""
        left: set[str] = set()
        for key, value in changes:
            self._leaving.on_programmed(key, value, now)
            frontend = self.services.at.get(key.vip)
            known = None if frontend is None else self._desired.get(frontend.name)
            if frontend is not None and known is not None and key in known.leaving:
                left.add(frontend.name)
        return self._forget(left)

    def on_report(self, report: ProbeReport, now: Instant) -> set[str]:
        """Apply the results in a report."""
        touched: set[str] = set()
        self._note_passing(report.passing, now)  # before the results: a pass from before a lost route proves little
        for result in report.results:
            touched |= self._result(result, now)
        return touched

    def _note_passing(self, targets: Iterable[str], now: Instant) -> None:
        """Note passes that changed no health: they show that this machine reaches these addresses."""
        for name in targets:
            if (found := self.services.watched.get(name)) is not None:
                target = self.services.backends[found[0]].checks[found[1]]
                assert target is not None, "only known checks pass"
                self.reachability.on_pass(target.address, now, max(target.check.interval, REPORT_EVERY))

    def reload(self, services: Services, now: Instant) -> set[str]:
        """Replace the services. What did not change keeps its state, and so do intents and the warm-up (B5)."""
        before = self.services
        served = {one.vip: self.desired(one, now).serving for one in before.frontends.values()}
        known, former = dict(self.health), self._leaving.still_serving(now)
        carried = carry_over(before, services, known, self._adopted.is_serving, now, former)
        gone = {name for name in before.backends if name not in carried}
        for name in gone:
            self._move(name, Signal(HealthEvent.REMOVE, "it is no longer configured"), now)
            self.history.pop(name, None)
        self.services, self.health = services, carried
        self._weights = self._asked_weights()
        self._leaving.on_reload(before, services, known, carried, served, now)
        self._plan_joins(now, {one.identity for one in before.backends.values()})
        for name in carried.keys() & known.keys():
            self._note_transition(name, known[name], now)
        self._unprobed &= carried.keys()
        same = {name for name, one in services.backends.items() if before.backends.get(name) == one}
        self.probe_errors = {name: errors for name, errors in self.probe_errors.items() if name in same}
        self._ramps = {key: began for key, began in self._ramps.items() if key[1] in carried}
        self._desired.clear()
        self._states.clear()
        self._pools = {vip: memory for vip, memory in self._pools.items() if vip in services.at}
        held = self._apply_holds(now)
        changed = {name for name, one in services.frontends.items() if before.frontends.get(name) != one}
        moved = {name for name, one in services.backends.items() if before.backends.get(name) != one}
        return changed | held | self._users(moved)

    def apply_intents(self, intents: Iterable[Intent], wall: datetime, now: Instant) -> set[str]:
        """Replace all operator intents; those that have expired do not count."""
        holding = [one for one in intents if one.holds(wall)]
        before = self.pauses.keys()
        self.intents = tuple(one for one in holding if one.scope.target in _ABOUT_BACKENDS)
        self.pauses = {
            one.scope.name: one
            for one in holding
            if one.scope.target is ScopeKind.FRONTEND and one.what is IntentKind.PAUSE
        }
        weights = self._asked_weights()
        changed = {pair[1] for pair in {*weights, *self._weights} if weights.get(pair) != self._weights.get(pair)}
        self._weights = weights
        ended = (before - self.pauses.keys()) & self.services.frontends.keys()
        reweighted = [name for name, one in self.services.backends.items() if one.configured in changed]
        return self._apply_holds(now) | self._forget(self._users(reweighted)) | ended

    def _asked_weights(self) -> dict[tuple[str, str], int]:
        """Weights that operators set, by frontend and backend: that of a backend in a frontend goes before that of its
        pool, which goes before that of the backend in all frontends."""
        found: dict[tuple[str, str], int] = {}
        asked = [(one.scope, one.weight) for one in self.intents if one.weight is not None]
        for scope, weight in asked:
            frontend = self.services.frontends.get(scope.pair[0])
            index = frontend.pool_index(scope.pair[1]) if frontend and scope.target is ScopeKind.POOL else None
            if frontend is not None and index is not None:
                members = (self.services.backends[name].configured for name, _ in frontend.pools[index])
                found |= {(frontend.name, name): weight for name in members}
        return found | {scope.pair: weight for scope, weight in asked if scope.target is not ScopeKind.POOL}

    def asked_weight(self, frontend: ResolvedFrontend, backend: ResolvedBackend) -> int | None:
        """Weight that an operator set for a backend of a frontend."""
        return asked_weight(self._weights, frontend.name, backend)

    def holding_intents(self) -> tuple[Intent, ...]:
        """All intents in effect, about backends and frontends."""
        return (*self.intents, *self.pauses.values())

    def released(self, now: Instant) -> Mapping[str, Trigger]:
        """Frontends that the warm-up releases now, each once in the life of the process."""
        if self.services.frontends.keys() <= self.warm.released:
            return {}
        known = {
            name: all(self.health[each].is_known for each in one.backends())
            for name, one in self.services.frontends.items()
        }
        self.warm, released = self.warm.released_now(known, now)
        return released

    def desired(self, frontend: ResolvedFrontend, now: Instant) -> DesiredFrontend:
        """Return the contents that the dataplane should have for the frontend, and when they change by themselves."""
        known = self._desired.get(frontend.name)
        if known is not None and (known.due is None or now < known.due):
            return known
        if known is not None:
            self._elapsed.add(frontend.name)
        inputs = Inputs(
            self.services.backends,
            self.health,
            self._ramps,
            self._weights,
            self._leaving.predecessors,
            self._leaving.replaced,
            self._joins,
            self._pools,
            self._leaving.programmed,
            self.canonical,
        )
        found = self._desired[frontend.name] = desired(frontend, inputs, now)
        if found.memory is not None:
            self._pools[frontend.vip] = found.memory
        return found

    def due(self, now: Instant) -> set[str]:
        """Take the frontends whose desired state changes by now although nothing happened."""
        due = {name for name, one in self._desired.items() if one.due is not None and one.due <= now}
        self._forget(due)
        due, self._elapsed = due | self._elapsed, set()
        return due

    def next_due(self) -> Instant | None:
        return min((one.due for one in self._desired.values() if one.due is not None), default=None)

    def frontend_state(self, vip: Vip) -> FrontendState | None:
        frontend = self.services.at.get(vip)
        if frontend is None:
            return None
        if vip not in self._states:
            self._states[vip] = self._frontend_state(frontend)
        return self._states[vip]

    def _frontend_state(self, frontend: ResolvedFrontend) -> FrontendState:
        states = {name: self.health[name].state for name in frontend.backends()}
        backends = self.services.backends
        probed = [state for state in states.values() if state not in _ENTERS]
        members = [backends[name] for name in states]
        predecessors = self._leaving.predecessors
        members += [predecessors[name].backend for name in states.keys() & predecessors.keys()]
        known_as = {one.identity: self._known_as(frontend, one.identity) for one in members}
        unknown = [name for name, state in states.items() if state is HealthState.UNKNOWN]
        held = [name for name, state in states.items() if state in _ENTERS]
        asked = [(one.identity, asked_weight(self._weights, frontend.name, one)) for one in members]
        return FrontendState(
            frontend.name,
            unknown=frozenset(known_as[backends[name].identity] for name in unknown),
            held=frozenset(known_as[backends[name].identity] for name in held),
            known=not probed or any(state is not HealthState.UNKNOWN for state in probed),
            members=frozenset(known_as.values()),
            weights={known_as[identity]: weight for identity, weight in asked if weight is not None},
        )

    def names_in(self, frontend: ResolvedFrontend) -> Mapping[BackendId, str]:
        """Names of a frontend's backends, by their identity in the dataplane. Others may name the same address else."""
        backends = self.services.backends
        return {self._known_as(frontend, backends[name].identity): name for name in frontend.backends()}

    def _known_as(self, frontend: ResolvedFrontend, backend: BackendId) -> BackendId:
        """Identity of a backend in the dataplane."""
        settings = VipKey(frontend.vip), frontend.settings
        return self.canonical(frontend.vip, [settings, (VipKey(frontend.vip, backend), BackendEntry(0))])[1][0].backend

    def assignment(self, namespace: str) -> Assignment:
        """The full order for the prober."""
        return Assignment(self.services.targets(self.health), self.intervals(), namespace, self.warm.min_delay)

    def take_changed_intervals(self) -> Mapping[str, ProbeInterval]:
        """Return the intervals that have changed since the last call."""
        changed, self._changed_intervals = self._changed_intervals, {}
        return changed

    def intervals(self) -> dict[str, ProbeInterval]:
        """Targets that are not at their normal interval."""
        return {
            target: interval
            for target, (name, check, _) in self.services.watched.items()
            if (interval := self.health[name].counts[check].interval) is not ProbeInterval.NORMAL
        }

    def _result(self, result: ProbeResult, now: Instant) -> set[str]:
        found = self.services.watched.get(result.target)
        if found is None or not _is_current(result, found[2]):  # a late result of what is no longer configured
            return set()
        name, check, _ = found
        target = self.services.backends[name].checks[check]
        assert target is not None, "only known checks have results"
        event = self._event(result, target, now)
        self.has_results |= event is not HealthEvent.LATE
        why = f"{check}: {result.code.value}" + (f", {result.detail}" if result.detail else "")
        self._note_error(name, check, None if result.passed else why)
        rules = HealthThresholds(target.check.rise, target.check.fall)
        before = self.health[name].counts[check].interval
        touched = self._move(name, Signal(event, why, check, rules), now)
        after = self.health[name].counts[check].interval
        if after is not before:
            self._changed_intervals[result.target] = after
        return touched

    def _note_error(self, name: str, check: str, error: str | None) -> None:
        errors = self.probe_errors.setdefault(name, {})
        if error is None:
            errors.pop(check, None)
        else:
            errors[check] = error

    def _event(self, result: ProbeResult, target: TargetSpec, now: Instant) -> HealthEvent:
        if result.passed:
            self.reachability.on_pass(target.address, now, target.check.interval)
        elif result.code is ProbeCode.NOROUTE and not result.late:
            failing = self.reachability.is_failing(target.address, now)
            return HealthEvent.FAILED if failing else HealthEvent.LATE
        return _event(result)

    def _move(self, name: str, signal: Signal, now: Instant) -> set[str]:
        before = self.health[name]
        after = self.health[name] = step(before, signal, now)
        if not self._note_transition(name, before, now):
            if after.is_newcomer is not before.is_newcomer:
                self._forget(self._users([name]))
            return set()
        if after.state is HealthState.UP:
            self._joins.pop(self.services.backends[name].identity, None)
            self._begin_ramps(name, now)
        if after.state not in (HealthState.UNKNOWN, HealthState.REMOVED):
            self._unprobed.discard(name)
            self._leaving.on_known(name, self.services, self.health)
        return self._forget(self._users([name]))

    def _note_transition(self, name: str, before: Health, now: Instant) -> bool:
        """Record a change of state. Returns whether there is one."""
        after = self.health[name]
        if after.state is before.state:
            return False
        transition = HealthTransition(now, name, before.state, after.state, after.why)
        self.history.setdefault(name, deque(maxlen=self._history_length)).append(transition)
        self.unlogged.append(transition)
        return True

    def _plan_joins(self, now: Instant, known: Container[BackendId] = ()) -> None:
        """Let new backends join the base table with their first `up`, or after `max_delay`."""
        for name, one in self.services.backends.items():
            if one.identity not in known and self.health[name].state is not HealthState.UP:
                self._joins[one.identity] = now + self.warm.max_delay
        there = {one.identity for one in self.services.backends.values()}
        self._joins = {identity: at for identity, at in self._joins.items() if identity in there}

    def _begin_ramps(self, name: str, now: Instant) -> None:
        for user in self.services.users[name]:
            frontend = self.services.frontends[user]
            began = now
            if name in self._unprobed:
                backends, canonical = self.services.backends, self.canonical
                began = self._adopted.resumed(frontend, name, backends, self._weights, canonical, now)
            self._ramps[user, name] = began if frontend.config.slow_start else slow_start.DONE

    def _apply_holds(self, now: Instant) -> set[str]:
        """Pause, disable and resume backends as the configuration and the operator ask."""
        holds = {
            one.scope.name: one for one in self.intents if one.what in _HOLDS and one.scope.target is ScopeKind.BACKEND
        }
        touched: set[str] = set()
        for name, backend in self.services.backends.items():
            intent = holds.get(backend.configured)
            hold, why = (None, "") if intent is None else (_HOLDS[intent.what], f"{intent.who}: “{intent.why}”")
            if not backend.enabled:
                hold, why = HealthState.DISABLED, "disabled in the configuration"
            touched |= self._hold(name, hold, why, now)
        return touched

    def _hold(self, name: str, hold: HealthState | None, why: str, now: Instant) -> set[str]:
        touched: set[str] = set()
        state = self.health[name].state
        if state is hold or (hold is None and state not in _LEAVES):
            return touched
        if state in _LEAVES and (hold is None or (state, hold) == (HealthState.DISABLED, HealthState.PAUSED)):
            touched |= self._move(name, Signal(_LEAVES[state], why or "an operator's hold has ended"), now)
        if hold is not None:
            touched |= self._move(name, Signal(_ENTERS[hold], why), now)
        return touched

    def _forget(self, frontends: Iterable[str]) -> set[str]:
        """Compute the desired state of these frontends again when it is next read. Returns their names."""
        names = set(frontends)
        for name in names:
            self._desired.pop(name, None)
            if name in self.services.frontends:
                self._states.pop(self.services.frontends[name].vip, None)
        return names

    def _users(self, backends: Iterable[str]) -> set[str]:
        """Frontends that use any of these backends (protection: B17)."""
        users = self.services.users
        return {user for name in backends for user in users.get(name, ())}


def _is_current(result: ProbeResult, generation: int) -> bool:
    """Tell whether a result is about the present address and check of its target (protection: B31)."""
    return result.generation == generation


def _event(result: ProbeResult) -> HealthEvent:
    """A failure counts only when it says something about the backend (protection: B14)."""
    if result.passed:
        return HealthEvent.PASSED
    return HealthEvent.FAILED if result.failed else HealthEvent.LATE
