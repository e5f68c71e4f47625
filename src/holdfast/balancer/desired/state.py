"""The balancer's mind: roster, health, ramps, intents and warm-up, and what they make of what is heard.

No IO and no clock. Every method that can change what is wanted answers with the frontends to look at again, all of them
that use the backend in question (B17). What is wanted is computed when it is asked for, never remembered: a frontend
that is gone by then is simply not wanted (B16).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.balancer.desired import slow_start as slowstart
from holdfast.balancer.desired.frontend import DesiredFrontend, Inputs, desired
from holdfast.balancer.gates import FrontendState
from holdfast.balancer.health import Health, HealthEvent, HealthState, HealthThresholds, Signal, step
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.probing.messages import Assignment, ProbeInterval, ProbeReport, ProbeResult
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend, Services, carry
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey
from holdfast.balancer.warm_up import Trigger, WarmUp
from holdfast.model.base.time import Instant
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import ScopeKind as ScopeTarget

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


class BalancerState:
    """Everything that decides what the dataplane should hold."""

    def __init__(self, roster: Services, warm: WarmUp, *, history: int = 20) -> None:
        now = warm.started
        self.roster = roster
        self.warm = warm
        self.intents: tuple[Intent, ...] = ()
        """The operator's wishes about backends."""
        self.pauses: Mapping[str, Intent] = {}
        """Frontends that an operator paused: what is programmed for them stays as it is."""
        self.history: dict[str, deque[HealthTransition]] = {}
        self.news: list[HealthTransition] = []
        """Transitions since somebody took them; for the log."""
        self.paced: dict[str, ProbeInterval] = {}
        """Targets whose pace has changed since somebody took them; for the prober."""
        self.told = False
        """Whether the prober has delivered any result since the start."""
        # Until the dataplane has been read, every backend may be one that it serves with (B25).
        self.health: dict[str, Health] = carry(Services(), roster, {}, lambda _: True, now)
        self._kept = history
        self._found: Mapping[VipKey, BackendEntry] = {}
        self._serving: frozenset[BackendId] | None = None
        self._unmet = set(roster.backends)
        self._ramps: dict[tuple[str, str], Instant] = {}
        self._weights: dict[str, int] = {}
        self._due: dict[str, Instant] = {}

    def adopt(self, objects: Mapping[VipKey, Value]) -> None:
        """Takes what the dataplane holds at the start as the starting point."""
        self._found = {key: value for key, value in objects.items() if isinstance(value, BackendEntry)}
        self._serving = frozenset(key.backend for key, entry in self._found.items() if entry.weight)
        for name, backend in self.roster.backends.items():
            if name in self._unmet and not self._is_serving(backend):
                counts = {check: replace(count, careful=False) for check, count in self.health[name].counts.items()}
                self.health[name] = replace(self.health[name], counts=counts)

    def heard(self, report: ProbeReport, now: Instant) -> set[str]:
        """Takes the results of a report into account."""
        touched: set[str] = set()
        for result in report.results:
            touched |= self._result(result, now)
        return touched

    def reload(self, roster: Services, now: Instant) -> set[str]:
        """Goes over to another roster. What did not change keeps its state, and so do intents and the warm-up (B5)."""
        before = self.roster
        carried = carry(before, roster, self.health, self._is_serving, now)
        gone = {name for name in before.backends if name not in carried}
        for name in gone:
            self._move(name, Signal(HealthEvent.REMOVE, "it is no longer configured"), now)
            self.history.pop(name, None)
        self.roster, self.health = roster, carried
        self._unmet &= carried.keys()
        self._ramps = {key: began for key, began in self._ramps.items() if key[1] in carried}
        self._due.clear()
        held = self._hold_as_wished(now)
        changed = {name for name, one in roster.frontends.items() if before.frontends.get(name) != one}
        moved = {name for name, one in roster.backends.items() if before.backends.get(name) != one}
        return changed | held | self._users(moved)

    def intend(self, intents: Iterable[Intent], wall: datetime, now: Instant) -> set[str]:
        """These are the operator's wishes now, all of them; what has run out does not count."""
        holding = [one for one in intents if one.holds(wall)]
        before = self.pauses.keys()
        self.intents = tuple(one for one in holding if one.scope.target is ScopeTarget.BACKEND)
        self.pauses = {
            one.scope.name: one
            for one in holding
            if one.scope.target is ScopeTarget.FRONTEND and one.what is IntentKind.PAUSE
        }
        weights = {one.scope.name: one.weight for one in self.intents if one.weight is not None}
        changed = {name for name in {*weights, *self._weights} if weights.get(name) != self._weights.get(name)}
        self._weights = weights
        ended = (before - self.pauses.keys()) & self.roster.frontends.keys()
        return self._hold_as_wished(now) | self._users(changed) | ended

    def released(self, now: Instant) -> Mapping[str, Trigger]:
        """The frontends that warm-up lets through now, each once in the life of the process."""
        if self.roster.frontends.keys() <= self.warm.released:
            return {}
        known = {
            name: all(self.health[each].is_known for each in one.backends())
            for name, one in self.roster.frontends.items()
        }
        self.warm, let = self.warm.released_now(known, now)
        return let

    def desired(self, frontend: ResolvedFrontend, now: Instant) -> DesiredFrontend:
        """What the dataplane should hold for it, and when to look again."""
        around = Inputs(self.roster.backends, self.health, self._ramps, self._weights)
        found = desired(frontend, around, now)
        if found.due is None:
            self._due.pop(frontend.name, None)
        else:
            self._due[frontend.name] = found.due
        return found

    def due(self, now: Instant) -> set[str]:
        """Takes the frontends that want to be looked at again although nothing happened."""
        due = {name for name, at in self._due.items() if at <= now}
        for name in due:
            del self._due[name]
        return due

    def next_due(self) -> Instant | None:
        return min(self._due.values(), default=None)

    def standing(self, vip: Vip) -> FrontendState | None:
        frontend = self.roster.at.get(vip)
        if frontend is None:
            return None
        states = {name: self.health[name].state for name in frontend.backends()}
        place = self.roster.backends
        probed = [state for state in states.values() if state not in _ENTERS]
        return FrontendState(
            frontend.name,
            unknown=frozenset(place[name].identity for name, state in states.items() if state is HealthState.UNKNOWN),
            held=frozenset(place[name].identity for name, state in states.items() if state in _ENTERS),
            known=not probed or any(state is not HealthState.UNKNOWN for state in probed),
        )

    def assignment(self, namespace: str) -> Assignment:
        """What the prober is to do now."""
        return Assignment(self.roster.targets(self.health), self.paces(), namespace)

    def paces(self) -> dict[str, ProbeInterval]:
        """The targets that are not at their normal pace."""
        return {
            target: pace
            for target, (name, check) in self.roster.watched.items()
            if (pace := self.health[name].counts[check].pace) is not ProbeInterval.NORMAL
        }

    def _result(self, result: ProbeResult, now: Instant) -> set[str]:
        found = self.roster.watched.get(result.target)
        if found is None:  # a probe of what has been taken off the roster comes home
            return set()
        name, check = found
        event = _event(result)
        self.told |= event is not HealthEvent.LATE
        why = f"{check}: {result.code.value}" + (f", {result.detail}" if result.detail else "")
        target = self.roster.backends[name].checks[check]
        assert target is not None, "only known checks have results"
        rules = HealthThresholds(target.check.rise, target.check.fall)
        before = self.health[name].counts[check].pace
        touched = self._move(name, Signal(event, why, check, rules), now)
        after = self.health[name].counts[check].pace
        if after is not before:
            self.paced[result.target] = after
        return touched

    def _move(self, name: str, signal: Signal, now: Instant) -> set[str]:
        before = self.health[name]
        after = self.health[name] = step(before, signal, now)
        if after.state is before.state:
            return set()
        transition = HealthTransition(now, name, before.state, after.state, after.why)
        self.history.setdefault(name, deque(maxlen=self._kept)).append(transition)
        self.news.append(transition)
        if after.state is HealthState.UP:
            self._begin_ramps(name, now)
        if after.state is not HealthState.UNKNOWN:
            self._unmet.discard(name)
        return self._users([name])

    def _begin_ramps(self, name: str, now: Instant) -> None:
        for user in self.roster.users[name]:
            frontend = self.roster.frontends[user]
            began = self._resumed(frontend, name, now) if name in self._unmet else now
            self._ramps[user, name] = began if frontend.config.slow_start else slowstart.DONE

    def _resumed(self, frontend: ResolvedFrontend, name: str, now: Instant) -> Instant:
        """B23: a restart begins no slow start; one that was under way goes on from the weight that was found."""
        pool = next(pool for pool in frontend.pools if any(each == name for each, _ in pool))
        found = {each: self._weight_found(frontend, each) for each, _ in pool}
        own = found[name]
        if own is None or not any(found.values()):
            return slowstart.DONE
        full = self._weights.get(name, dict(pool)[name])
        return slowstart.resumed(full, own, frontend.config.slow_start, now) if own else now

    def _weight_found(self, frontend: ResolvedFrontend, name: str) -> int | None:
        entry = self._found.get(VipKey(frontend.vip, self.roster.backends[name].identity))
        return None if entry is None else entry.weight

    def _is_serving(self, backend: ResolvedBackend) -> bool:
        return self._serving is None or backend.identity in self._serving

    def _hold_as_wished(self, now: Instant) -> set[str]:
        """Brings every backend to the state that configuration and operator ask for."""
        wished = {one.scope.name: one for one in self.intents if one.what in _HOLDS}
        touched: set[str] = set()
        for name, backend in self.roster.backends.items():
            intent = wished.get(name)
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

    def _users(self, backends: Iterable[str]) -> set[str]:
        users = self.roster.users
        return {user for name in backends for user in users.get(name, ())}


def _event(result: ProbeResult) -> HealthEvent:
    """A failure counts only when it says something about the backend (B14)."""
    if result.passed:
        return HealthEvent.PASSED
    return HealthEvent.FAILED if result.failed else HealthEvent.LATE
