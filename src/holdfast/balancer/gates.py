"""The gates of the VIP reconciler: warm-up, known health, the pause of one frontend, and the announced address.

`no_prober`: the prober is silent, or has no route to any backend (B27), so health is going stale; no change that
follows from health is written (B21).
`no_health`: no backend of the frontend has a known state, or this one is unknown and the prober has delivered no result
since the start; what the dataplane held at the start stays (B22). What an operator asked of a backend passes both
gates. A frontend is judged as a whole (B29): while health is stale, its changes pass together, with the health last
known, if one of them is an operator's, and else none passes, so that lowering the primaries never goes without raising
the standby. What the dataplane lost is restored also while the prober is silent: the prober's last report still
allowed it (B15). A paused frontend stays exactly as it is programmed until it is resumed, whatever its backends do.
`announced`: the address is withdrawn before its VIP is deleted, so that clients are routed elsewhere before the VIP
stops serving. The brake guards VIPs: an entry of a VIP that stays is never held by it (B26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.balancer.desired.state import FrontendState
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import KINDS, NO_BACKEND, BackendEntry, Value, Vip, VipKey, filled
from holdfast.balancer.warm_up import WarmUp
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile import Brake, Change, Closed, Op, Reason

ANNOUNCED = "announced"
_ANNOUNCER_SILENT_AFTER = Duration(seconds=30)


class HealthReason(Reason):
    NO_PROBER = "the prober is silent, so the health of the backends is stale"
    NO_ROUTE = "this machine has no route to any backend, so their health is stale"
    NO_HEALTH = "nothing is known of its backends yet, so what is programmed stays"


class AnnouncedReason(Reason):
    ANNOUNCED = "its address is still announced, and is withdrawn first"


FrontendStates = Callable[[Vip], FrontendState | None]
Programmed = Callable[[VipKey], Value | None]
"""The value last programmed for a key, or found at the start, whatever the dataplane holds by now."""


@dataclass(slots=True)
class WarmUpGate:
    """Holds changes of a frontend that the warm-up has not released."""

    warm: Callable[[], WarmUp]
    frontend_state: FrontendStates

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        found = self.frontend_state(change.key.vip)
        return self.warm().judge(None if found is None else found.name, now)


def pause_covers(frontend_state: FrontendStates, scope: Scope, key: VipKey) -> bool:
    """Tell whether a pause of that scope is about this key: one of a frontend only about its own VIP."""
    if scope.target is not ScopeKind.FRONTEND:
        return True
    found = frontend_state(key.vip)
    return found is not None and found.name == scope.name


@dataclass(slots=True)
class HealthGate:
    """Holds changes that would follow from unknown or stale health."""

    frontend_state: FrontendStates
    has_results: Callable[[], bool]
    """Tells whether the prober has delivered a result since the start."""
    since: Instant
    programmed: Programmed
    entries: Callable[[Vip], Mapping[BackendId, BackendEntry]]
    """Returns what is programmed for the backends of a VIP."""
    wanted: Callable[[Vip, Instant], Mapping[VipKey, Value]]
    """Returns what is wanted of a VIP."""
    has_base: bool = True
    """Tells whether entries of the dataplane have base weights."""
    silent_since: Instant | None = None
    """The last report of a prober that is silent or cut off; None while it reports."""
    reason: HealthReason = HealthReason.NO_PROBER

    def on_prober(self, silent_since: Instant | None, reason: HealthReason = HealthReason.NO_PROBER) -> bool:
        """Note whether the prober is silent or cut off, and since when. Returns True if that has changed."""
        was_silent, self.silent_since = self.silent_since is not None, silent_since
        self.reason = reason
        return was_silent != (silent_since is not None)

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        found = self.frontend_state(change.key.vip)
        backend = change.key.backend
        if found is None or (backend != NO_BACKEND and backend in found.held):
            return None
        if not found.known or (found.unknown and not self.has_results()):  # protection: B22
            opens = f"a first result of a backend of {found.name}"
            return Closed("no_health", HealthReason.NO_HEALTH, self.since, opens, found.name)
        if (
            self.silent_since is not None
            and not self._restores(change)
            and not self._has_request(found, change.key.vip, now)
        ):
            opens = "the prober's next report" if self.reason is HealthReason.NO_PROBER else "a route to any backend"
            return Closed("no_prober", self.reason, self.silent_since, opens)
        return None

    def _has_request(self, found: FrontendState, vip: Vip, now: Instant) -> bool:  # protection: B29
        """B29: tell whether an operator asked for one of the outstanding changes of this frontend: the VIP is new or
        has other settings, a backend that is held still gets flows, one that has left the configuration is still there,
        or a weight is not the one that was asked for."""
        wanted, settings = self.wanted(vip, now), self.programmed(VipKey(vip))
        if settings is None or filled(settings, wanted[VipKey(vip)]) != wanted[VipKey(vip)]:
            return True
        return any(
            (entry.weight and one in found.held)
            or one not in found.members
            or self._is_reweighted(found.weights.get(one), entry, wanted.get(VipKey(vip, one)))
            for one, entry in self.entries(vip).items()
        )

    def _is_reweighted(self, asked: int | None, entry: BackendEntry, wanted: Value | None) -> bool:
        """Tell whether the weight that an operator set, or the configured one, is not programmed. Health does not
        change the weight in the base, but for a switch to another pool, which leaves one of the two at 0."""
        if not isinstance(wanted, BackendEntry):
            return False
        if asked is not None and entry.weight and (wanted.weight or not asked) and entry.weight != wanted.weight:
            return True
        return self.has_base and 0 < wanted.base != entry.base > 0

    def _restores(self, change: Change[VipKey, Value]) -> bool:
        """Tell whether the change only restores what another program removed (protection: B15)."""
        was = self.programmed(change.key)
        found, wanted = (None if side is None else side.value for side in (change.old, change.new))
        if was is None or wanted is None or (found is not None and filled(found, was) == filled(was, found)):
            return False
        return _serves(wanted) == _serves(filled(was, wanted))


class VipBrake(Brake[VipKey, Value]):
    """Brake on VIPs: many of them at once are held, each with its entries.

    Backends come and go with every scaling, so a backend that leaves a VIP is no loss: held back, it would keep its
    share of new flows without being probed (B26).
    """

    def __init__(self, name: str, held: Callable[[], Iterable[VipKey]], is_wanted: Callable[[Vip], bool]) -> None:
        """`held` returns the keys in the dataplane; `is_wanted` tells whether a frontend has this VIP."""
        super().__init__(name, KINDS)
        self._in_dataplane = held
        self._is_wanted = is_wanted
        self._counted = (NEVER, 0, 0)
        """When VIPs were counted, how many of them are going, and how many there are."""

    def counts(self, change: Change[VipKey, Value]) -> bool:  # protection: B26
        """B26: an entry counts only with its VIP."""
        return change.key.backend == NO_BACKEND or not self._is_wanted(change.key.vip)

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.DELETE or change.key.backend == NO_BACKEND or self._is_wanted(change.key.vip):
            return super().judge(change, tally, have, now)
        if self._counted[0] != now:  # once per plan
            vips = [key.vip for key in self._in_dataplane() if key.backend == NO_BACKEND]
            self._counted = now, sum(not self._is_wanted(vip) for vip in vips), len(vips)
        _, going, there = self._counted
        whole = Change(Op.DELETE, VipKey(change.key.vip), change.old, None)
        return super().judge(whole, {Op.DELETE: going}, there, now)


@dataclass(slots=True)
class AnnouncedGate:
    """Holds deletes of VIPs whose address is announced. `is_wanted` tells whether a frontend wants it announced.

    The brake is asked first: the address of a VIP that the brake holds stays announced. The gate does not wait for an
    announcer that has been silent for long.
    """

    brake: Brake[VipKey, Value]
    is_wanted: Callable[[str], bool]
    announced: frozenset[str] = frozenset()
    """Addresses that the announcer has put on a device."""
    requested: frozenset[str] = frozenset()
    """Addresses in the last answer to the announcer: it may have announced them without having reported that yet."""
    outstanding: Mapping[str, str] = field(default_factory=dict)
    """Reason why an address is not announced or withdrawn yet, by address."""
    reported: Instant = NEVER

    def on_report(self, announced: Iterable[str], outstanding: Mapping[str, str], now: Instant) -> None:
        """Take a report of the announcer."""
        self.announced, self.outstanding, self.reported = frozenset(announced), outstanding, now

    def on_answer(self, requested: Iterable[str]) -> None:
        """Note the addresses in an answer to the announcer."""
        self.requested = frozenset(requested)

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        host = change.key.vip.host
        if change.op is not Op.DELETE or host not in self.announced | self.requested or self.is_wanted(host):
            return None
        if now - self.reported > _ANNOUNCER_SILENT_AFTER:
            return None
        held = self.brake.judge(change, tally, have, now)
        opens = "its withdrawal, after the delay"
        return held or Closed(ANNOUNCED, AnnouncedReason.ANNOUNCED, self.reported, opens, host, is_going=True)


def _serves(value: Value) -> Value | tuple[bool, bool | None]:
    """Reduce a value to the part that health decides; the exact weight also depends on time and on operators."""
    return (value.weight > 0, value.kill) if isinstance(value, BackendEntry) else value
