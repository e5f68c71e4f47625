"""The last gate of a VIP that is to go: its announced address goes first, so that clients are led elsewhere before the
door is shut. Also what the keeper knows of announcing, by the announcer's word.

The brake is asked before: what it holds does not begin to go. An announcer that has been silent for long is not waited
for.
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
    ANNOUNCED = "its address is still announced, and goes first"


@dataclass(slots=True)
class AnnouncedGate:
    """`named` says whether some frontend wants that address announced."""

    brake: Brake[VipKey, Value]
    named: Callable[[str], bool]
    announced: frozenset[str] = frozenset()
    """Addresses that are on a device because of us."""
    hinted: frozenset[str] = frozenset()
    """Addresses that the announcer was last asked for: it may have acted on that, and has not told yet."""
    obstacles: Mapping[str, str] = field(default_factory=dict)
    """What stands in the way of announcing or withdrawing an address, in words."""
    told: Instant = NEVER

    def hear(self, announced: Iterable[str], obstacles: Mapping[str, str], now: Instant) -> None:
        """What the announcer tells."""
        self.announced, self.obstacles, self.told = frozenset(announced), obstacles, now

    def judge(self, change: Change[VipKey, Value], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        host = host_of(change.key.vip)
        if change.op is not Op.DELETE or host not in self.announced | self.hinted or self.named(host):
            return None
        if now - self.told > SILENT_AFTER:
            return None
        braked = self.brake.judge(change, tally, have, now)
        return braked or Closed(GATE, AnnouncedReason.ANNOUNCED, self.told, "its withdrawal, after the delay", host)


def host_of(vip: Vip) -> str:
    return AnnouncedAddress(vip.family, vip.address, "").host
