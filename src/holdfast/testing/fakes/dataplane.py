"""A balancer's dataplane in memory: tables, clients with flows, and the faults of a real one.

It outlives the balancer, keeps every change in order, builds its tables as the real ones do, lets clients connect
through them, and can be unreachable, refuse changes, or lose everything in a restart. It can also have fields that are
set and never read, as those of VPP, with or without a memory of them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from holdfast.balancer.dataplane.api import Counters, VipDataplaneInfo
from holdfast.balancer.dataplane.remembered import RememberedFields
from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Objects, Value, Vip, VipKey, VipSettings, as_wanted, weights
from holdfast.reconcile import Change, Op
from holdfast.testing.fakes.target import FaultyTarget


@dataclass
class FakeDataplane(FaultyTarget[Change[VipKey, Value]]):
    """`objects` is what it holds of ours."""

    live: frozenset[str] = frozenset()
    objects: dict[VipKey, Value] = field(default_factory=dict)
    flows: dict[tuple[Vip, int], BackendId] = field(default_factory=dict)
    """Established flows: by VIP and client, the backend."""
    write_only: frozenset[str] = frozenset()
    """Fields that cannot be read."""
    remembered: RememberedFields | None = None
    _lost: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        self.check_reachable()
        held = {key: self._seen(value) for key, value in self.objects.items() if vips is None or key.vip in vips}
        return held if self.remembered is None else self.remembered.merged(held)

    def canonical(self, vip: Vip, objects: Objects) -> Objects:
        return as_wanted(vip, objects)

    async def apply(self, changes: Sequence[Change[VipKey, Value]]) -> Sequence[str | None]:
        self.check_reachable()
        errors = [self._applied(change) for change in changes]
        if self.remembered is not None:
            self.remembered.note(change for change, error in zip(changes, errors, strict=True) if error is None)
        return errors

    def _seen(self, value: Value) -> Value:
        if isinstance(value, VipSettings):
            return replace(value, sticky=None) if "sticky" in self.write_only else value
        return replace(value, kill=None) if "kill" in self.write_only else value

    async def counters(self) -> Mapping[VipKey, Counters]:
        self.check_reachable()
        established = list(self.flows.items())
        return {
            key: Counters(flows=sum((vip, to) == tuple(key) for (vip, _), to in established))
            for key in self.objects
            if key.backend != NO_BACKEND
        }

    async def lost(self) -> str:
        await self._lost.wait()
        self._lost.clear()
        return "the dataplane restarted"

    def describe(self) -> VipDataplaneInfo:
        return VipDataplaneInfo("fake", self.live)

    def restart(self) -> None:
        """Lose everything, as a restarted VPP does."""
        self.objects.clear()
        self.flows.clear()
        self.away = None
        self._lost.set()

    def table(self, vip: Vip) -> tuple[BackendId | None, ...]:
        """Return the backend of each bucket."""
        serving, table = self._table(vip)
        return tuple(serving[place] if place >= 0 else None for place in table.tolist())

    def _table(self, vip: Vip) -> tuple[tuple[BackendId, ...], maglev.Table]:
        settings = self.objects[VipKey(vip)]
        assert isinstance(settings, VipSettings)
        return maglev.table(weights(self.objects.items()).get(vip, {}), settings.table_size)

    def connect(self, vip: Vip, client: int) -> BackendId | None:
        """Open a flow of that client, or continue the one it has; None if it is refused."""
        if (vip, client) in self.flows:
            return self.flows[vip, client]
        if VipKey(vip) not in self.objects:
            return None
        bucket = int.from_bytes(hashlib.blake2b(client.to_bytes(8, "big"), digest_size=8).digest(), "big")
        serving, table = self._table(vip)
        place = int(table[bucket % len(table)])
        if place < 0:
            return None
        self.flows[vip, client] = serving[place]
        return serving[place]

    @property
    def entries(self) -> dict[VipKey, BackendEntry]:
        return {key: value for key, value in self.objects.items() if isinstance(value, BackendEntry)}

    def _applied(self, change: Change[VipKey, Value]) -> str | None:
        error = self.refuse(change) or self._wrong(change)
        if error is not None:
            return error
        self.calls.append(change)
        if change.new is None:
            for key in [key for key in self.objects if key == change.key or change.key == VipKey(key.vip)]:
                del self.objects[key]
                self._kill(key)
            return None
        self.objects[change.key] = change.new.value
        if isinstance(change.new.value, BackendEntry) and change.new.value.kill:
            self._kill(change.key)
        return None

    def _wrong(self, change: Change[VipKey, Value]) -> str | None:
        """Return the error that a real dataplane would give."""
        if change.op is Op.DELETE or change.new is None:
            return None
        if change.key.backend != NO_BACKEND and VipKey(change.key.vip) not in self.objects:
            return "there is no such VIP"
        before = self.objects.get(change.key)
        if isinstance(before, VipSettings) and self._differing(before, change.new.value) - self.live:
            return "this attribute cannot change live"
        return None

    def _differing(self, before: VipSettings, after: Value) -> set[str]:
        return {one.name for one in fields(before) if getattr(before, one.name) != getattr(after, one.name)}

    def _kill(self, key: VipKey) -> None:
        for flow in [flow for flow, to in self.flows.items() if flow[0] == key.vip and to == key.backend]:
            del self.flows[flow]
