"""Gate of the VIP reconciler: the announced address is withdrawn before the VIP is deleted.

Clients are routed elsewhere before the VIP stops serving. The brake is asked first: the address of a VIP that the brake
holds stays announced. The gate does not wait for an announcer that has been silent for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.balancer.announce.policy import AnnouncedAddress
from holdfast.balancer.vip import Value, Vip, VipKey
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import Brake, Change, Closed, Op, Reason

SILENT_AFTER = Duration(seconds=30)
GATE = "announced"


class AnnouncedReason(Reason):
    ANNOUNCED = "its address is still announced, and is withdrawn first"


@dataclass(slots=True)
class AnnouncedGate:
    """Holds deletes of VIPs whose address is announced. `is_wanted` tells whether a frontend wants it announced."""

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
        """Takes a report of the announcer."""
        self.announced, self.outstanding, self.reported = frozenset(announced), outstanding, now

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        host = host_of(change.key.vip)
        if change.op is not Op.DELETE or host not in self.announced | self.requested or self.is_wanted(host):
            return None
        if now - self.reported > SILENT_AFTER:
            return None
        held = self.brake.judge(change, tally, have, now)
        return held or Closed(GATE, AnnouncedReason.ANNOUNCED, self.reported, "its withdrawal, after the delay", host)


def host_of(vip: Vip) -> str:
    """The address of a VIP as text, without port and protocol."""
    return AnnouncedAddress(vip.family, vip.address, "").host
