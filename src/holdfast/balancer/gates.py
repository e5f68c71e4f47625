"""The balancer's own gates: warm-up, health known, and the pause of one frontend.

`no_prober`: the prober is silent, so what is known of backends is growing old; nothing that follows from it is written
(B21). `no_health`: nothing is known of a frontend's backends, or one is unknown to a prober that has told nothing at
all since the start; what was found in the dataplane stays (B22). An operator's own word about a backend passes both.
What the dataplane lost is given back to it also in silence: it served so when the prober was last heard (B15).
A paused frontend is left exactly as it is, whatever becomes of its backends, until it is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Value, Vip, VipKey
from holdfast.balancer.warm_up import WarmUp
from holdfast.model.base.time import NEVER, Instant
from holdfast.reconcile import Change, Closed, Op, PauseGate, Reason


class HealthReason(Reason):
    NO_PROBER = "the prober is silent, so nobody knows how the backends are"
    NO_HEALTH = "nothing is known of its backends yet, so what is programmed stays"


@dataclass(frozen=True, slots=True)
class FrontendState:
    """What is known of a frontend's backends."""

    name: str
    unknown: frozenset[BackendId] = frozenset()
    held: frozenset[BackendId] = frozenset()
    """Those that an operator paused or disabled."""
    known: bool = True
    """Whether any backend has a real state; what an operator took out tells nothing of the others."""


Standings = Callable[[Vip], FrontendState | None]
Programmed = Callable[[VipKey], Value | None]
"""What was last programmed there, or found at the start, whatever the dataplane holds by now."""


@dataclass(slots=True)
class WarmUpGate:
    """Asks the warm-up about the frontend that a change belongs to."""

    warm: WarmUp
    standing: Standings

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        found = self.standing(change.key.vip)
        return self.warm.judge(None if found is None else found.name, now)


@dataclass(slots=True)
class FrontendPauseGate:
    """Asks the intent gate of the frontend that a change belongs to."""

    standing: Standings
    paused: Mapping[str, PauseGate[VipKey]] = field(default_factory=dict)

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        found = self.standing(change.key.vip)
        intent = None if found is None else self.paused.get(found.name)
        return None if intent is None else intent.judge(change, tally, have, now)


@dataclass(slots=True)
class HealthGate:
    """Whether enough is known of health to act on it."""

    standing: Standings
    silent: Instant | None = None
    """Since when the prober has said nothing; None: it speaks."""
    told: bool = field(default=False)
    """Whether the prober has delivered any result since the start."""
    since: Instant = NEVER
    programmed: Programmed = lambda _key: None

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        found = self.standing(change.key.vip)
        backend = change.key.backend
        if found is None or (backend != NO_BACKEND and backend in found.held):
            return None
        if not found.known or (backend in found.unknown and not self.told):
            opens = f"a first result of a backend of {found.name}"
            return Closed("no_health", HealthReason.NO_HEALTH, self.since, opens, found.name)
        if self.silent is not None and change.op is not Op.DELETE and not self._gives_back(change):
            return Closed("no_prober", HealthReason.NO_PROBER, self.silent, "the prober's next report")
        return None

    def _gives_back(self, change: Change[VipKey, Value]) -> bool:
        """Whether somebody took away what was programmed there, and it will serve again as it did."""
        was = self.programmed(change.key)
        found, wanted = (None if side is None else side.value for side in (change.old, change.new))
        if was is None or wanted is None or found == was:
            return False
        return _serves(wanted) == _serves(was)


def _serves(value: Value) -> Value | tuple[bool, bool]:
    """What of a value is health's; how much an entry gets is also a matter of time and of operators."""
    return (value.weight > 0, value.kill) if isinstance(value, BackendEntry) else value
