"""Source of the announcer: the addresses that the last answer of the VIP reconciler wants announced."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.announce.policy import STALE_AFTER, AnnouncedAddress, AnnounceInput, AnnouncePolicy
from holdfast.model.base.time import NEVER
from holdfast.reconcile import Away, Owned
from holdfast.runtime.clock import Clock


class WantedAddresses:
    """Wanted addresses, while the last answer of the VIP reconciler is fresh."""

    def __init__(self, clock: Clock) -> None:
        self.policy = AnnouncePolicy(AnnounceInput(NEVER))
        self._clock = clock
        self.updated = NEVER

    def update(self, received: AnnounceInput) -> None:
        self.updated = self._clock.now()
        self.policy.update(received, self.updated)

    async def read(
        self, after: AnnouncedAddress | None, upto: AnnouncedAddress | None
    ) -> Sequence[tuple[AnnouncedAddress, Owned[None]]]:
        wanted = self._wanted()
        return [
            (address, owned)
            for address, owned in wanted.items()
            if (after is None or after < address) and (upto is None or address <= upto)
        ]

    async def get(self, keys: Collection[AnnouncedAddress]) -> Mapping[AnnouncedAddress, Owned[None]]:
        wanted = self._wanted()
        return {address: wanted[address] for address in keys if address in wanted}

    async def refresh(self) -> None:
        self._wanted()

    def _wanted(self) -> dict[AnnouncedAddress, Owned[None]]:
        if not self.updated or self._clock.now() - self.updated > STALE_AFTER:
            raise Away(VIPS_WORKER, "it does not report the state of the frontends")
        revision = self.policy.input.revision or 0
        return {address: Owned(None, VIPS_WORKER, revision) for address in self.policy.wanted()}
