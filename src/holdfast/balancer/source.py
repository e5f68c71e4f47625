"""Source of the VIP reconciler: the desired state of every frontend, computed when it is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

from holdfast.balancer.desired.state import BalancerState
from holdfast.balancer.vip import Value, Vip, VipKey
from holdfast.model.base.time import Instant
from holdfast.reconcile import Owned
from holdfast.runtime.clock import Clock


async def _nothing() -> None:
    """A configuration file is read again only on a reload, so there is nothing to refresh."""


class WantedVips:
    """Wanted VIPs and entries. `name` and `revision` identify the configuration that they come from."""

    def __init__(
        self, balancer: BalancerState, clock: Clock, name: str = "file", fresh: Callable[[], Awaitable[None]] = _nothing
    ) -> None:
        self._balancer = balancer
        self._clock = clock
        self._fresh = fresh
        self.name = name
        self.revision = 1

    def complete(self, revision: int) -> None:
        """Note the revision of a complete configuration."""
        self.revision = revision

    async def read(self, after: VipKey | None, upto: VipKey | None) -> Sequence[tuple[VipKey, Owned[Value]]]:
        return [
            (key, owned)
            for key, owned in self.objects()
            if (after is None or after < key) and (upto is None or key <= upto)
        ]

    async def get(self, keys: Collection[VipKey]) -> Mapping[VipKey, Owned[Value]]:
        at, wanted = self._balancer.services.at, set(keys)
        now = self._clock.now()
        frontends = [at[vip] for vip in {key.vip for key in wanted} if vip in at]
        objects = [pair for frontend in frontends for pair in self._balancer.desired(frontend, now).objects]
        return {key: self._owned(value) for key, value in objects if key in wanted}

    def of(self, vip: Vip, now: Instant) -> Mapping[VipKey, Value]:
        """Wanted objects of one VIP."""
        frontend = self._balancer.services.at.get(vip)
        return {} if frontend is None else dict(self._balancer.desired(frontend, now).objects)

    async def refresh(self) -> None:
        await self._fresh()

    def objects(self) -> Iterator[tuple[VipKey, Owned[Value]]]:
        """All wanted objects, in key order."""
        now = self._clock.now()
        for frontend in self._balancer.services.frontends.values():
            for key, value in self._balancer.desired(frontend, now).objects:
                yield key, self._owned(value)

    def _owned(self, value: Value) -> Owned[Value]:
        return Owned(value, self.name, self.revision)
