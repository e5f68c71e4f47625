"""Target of the VIP reconciler: a dataplane, seen as keys and values.

A changed attribute that the dataplane cannot change live becomes a delete and a create with the entries that were there
(B9). Before each batch is applied, the number of buckets that it moves is predicted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import structlog

from holdfast.balancer.dataplane.api import ChurnPredictor, VipDataplane
from holdfast.balancer.maglev import churn
from holdfast.balancer.maglev.churn import Churn
from holdfast.balancer.maglev.table import BackendId, BucketWeight
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Value, Vip, VipKey, VipSettings, filled, weights
from holdfast.config.sections.frontend import DEFAULT_TABLE_SIZE
from holdfast.reconcile import Change, Op, Outcome, Owned
from holdfast.runtime.store_guard import Offload

log = structlog.get_logger(__name__)

ValueChange = Change[VipKey, Value]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BucketMoves:
    """Buckets that a batch of changes moves at one VIP."""

    vip: Vip
    churn: Churn


class VipTarget:
    """The VIPs of a dataplane. `on_moves` is called before each batch, with the buckets that it moves."""

    def __init__(
        self,
        dataplane: VipDataplane,
        on_moves: Callable[[Sequence[BucketMoves]], None] = lambda _moved: None,
        offload: Offload = asyncio.to_thread,
        on_incomplete: Callable[[Vip], None] = lambda _vip: None,
        on_programmed: Callable[[Sequence[tuple[VipKey, Value | None]]], None] = lambda _made: None,
    ) -> None:
        """`on_incomplete` is called with a VIP whose rebuild failed: it may be gone, and its entries with it.
        `on_programmed` is called with what was written; None: deleted."""
        self._dataplane = dataplane
        self._on_moves = on_moves
        self._on_incomplete = on_incomplete
        self._on_programmed = on_programmed
        self._offload = offload
        self.held: dict[VipKey, Value] = {}
        """Contents of the dataplane as of the last read."""
        self.programmed: dict[VipKey, Value] = {}
        """Values found at the start or written since, also if another program has removed them."""
        self._entries: dict[Vip, dict[BackendId, BackendEntry]] = {}

    def adopt(self, held: Mapping[VipKey, Value]) -> None:
        """Take the contents of the dataplane at the start."""
        self.held, self.programmed = dict(held), {}
        for key, value in held.items():
            self._program(key, value)

    def entries(self, vip: Vip) -> Mapping[BackendId, BackendEntry]:
        """Entries of a VIP as programmed last."""
        return self._entries.get(vip, {})

    async def read(self, after: VipKey | None) -> tuple[Sequence[tuple[VipKey, Owned[Value]]], VipKey | None]:
        held = await self._dataplane.read()
        self.held = dict(held)
        return [(key, _found(held[key])) for key in sorted(held) if after is None or after < key], None

    async def get(self, keys: Collection[VipKey]) -> Mapping[VipKey, Owned[Value]]:
        vips = {key.vip for key in keys}
        held = await self._dataplane.read(vips)
        self.held = {key: value for key, value in self.held.items() if key.vip not in vips} | dict(held)
        return {key: _found(held[key]) for key in keys if key in held}

    async def apply(self, ready: Sequence[ValueChange]) -> Sequence[Outcome[VipKey, Value]]:
        """Apply changes of what was read last, by `read` or `get`."""
        self._on_moves(await self.predicted(ready))
        is_atomic = self._dataplane.describe().atomic
        ordered = ready if is_atomic else in_call_order(ready)
        steps = [step for change in ordered for step in self._steps(change, self.held)]
        steps = steps if is_atomic else deletes_first(steps)
        errors = await self._dataplane.apply([step for step, _ in steps])
        failed: dict[VipKey, str] = {}
        for (_, owner), error in zip(steps, errors, strict=True):
            if error is not None:
                failed.setdefault(owner.key, error)
        self._remember(change for change in ready if change.key not in failed)
        for change in ready:
            if change.key in failed and change.op is Op.REPLACE and change.key.backend == NO_BACKEND:
                self._on_incomplete(change.key.vip)  # protection: B9
        return [Outcome(change, failed.get(change.key)) for change in ready]

    async def predicted(self, changes: Sequence[ValueChange]) -> list[BucketMoves]:
        """Count the buckets that these changes move, outside of the event loop: it takes a new table for each VIP."""
        vips = {change.key.vip for change in changes}
        held = {key: value for key, value in self.held.items() if key.vip in vips}
        plane = self._dataplane
        own = plane.churn if isinstance(plane, ChurnPredictor) else None
        return await self.computed(lambda: predicted(held, changes, own))

    async def computed(self, compute: Callable[[], T]) -> T:
        """Return what `compute` returns; it runs outside of the event loop."""
        found: list[T] = []
        await self._offload(lambda: found.append(compute()))
        return found[0]

    def _remember(self, changes: Iterable[ValueChange]) -> None:
        made = [(change.key, None if change.new is None else change.new.value) for change in changes]
        for key, value in made:
            if value is None:
                self.held.pop(key, None)
            else:
                self.held[key] = value
            self._program(key, value)
        self._on_programmed(made)

    def _program(self, key: VipKey, value: Value | None) -> None:
        entries = self._entries.setdefault(key.vip, {})
        entries.pop(key.backend, None)
        if isinstance(value, BackendEntry):
            entries[key.backend] = value
        if value is None:
            self.programmed.pop(key, None)
        else:
            self.programmed[key] = value

    def _steps(self, change: ValueChange, held: Mapping[VipKey, Value]) -> Iterator[tuple[ValueChange, ValueChange]]:
        """Split a change into steps that the dataplane can make, each with the change that it belongs to."""
        if change.op is not Op.REPLACE or self._is_live(change):
            yield change, change
            return
        assert change.new is not None
        vip = change.key.vip  # entries of another family are those of a VIP that was not ours, and cannot stay
        entries = [key for key in sorted(held) if key.vip == vip and key.backend.family == vip.family]
        log.warning(
            "rebuilding a VIP, because this attribute cannot change live", vip=str(change.key), entries=len(entries)
        )
        yield Change(Op.DELETE, change.key, change.old, None), change
        yield Change(Op.CREATE, change.key, None, change.new), change
        for key in entries:
            yield Change(Op.CREATE, key, None, Owned(held[key], change.new.source, change.new.revision)), change

    def _is_live(self, change: ValueChange) -> bool:
        """Tell whether the dataplane can make this change without a rebuild (protection: B9)."""
        assert change.old is not None
        assert change.new is not None
        old, new = filled(change.old.value, change.new.value), change.new.value
        if not isinstance(old, VipSettings) or not isinstance(new, VipSettings):
            return True
        differing = {
            field.name for field in fields(VipSettings) if getattr(old, field.name) != getattr(new, field.name)
        }
        return differing <= self._dataplane.describe().live


def in_call_order(changes: Iterable[ValueChange]) -> Sequence[ValueChange]:
    """Order of a batch that takes effect one by one: by turn, and within it numeric, so that every balancer makes the
    same calls (protection: B2)."""
    return sorted(changes, key=lambda change: (_turn(change), change.key))


def deletes_first(steps: Sequence[tuple[ValueChange, ValueChange]]) -> list[tuple[ValueChange, ValueChange]]:
    """Delete all VIPs of an address that are rebuilt before creating one of them: a dataplane may demand that they have
    an attribute in common, such as VPP their encapsulation (protection: B9)."""
    grouped = itertools.groupby(steps, key=lambda pair: (_turn(pair[1]), pair[1].key.vip[:2]))
    return [step for _, group in grouped for step in sorted(group, key=lambda pair: pair[0].op is not Op.DELETE)]


def _turn(change: ValueChange) -> int:
    """Turn of a change in a batch that takes effect one by one: what adds backends to a VIP or raises one goes before
    what lowers or deletes one."""
    old, new = (None if side is None else side.value for side in (change.old, change.new))
    if change.key.backend == NO_BACKEND:
        return 0 if new is not None else 4
    if not isinstance(new, BackendEntry):
        return 3
    return 1 if not isinstance(old, BackendEntry) or new.weight > old.weight else 2


VipChurn = Callable[[Mapping[VipKey, Value], Mapping[VipKey, Value]], Churn]


def predicted(
    held: Mapping[VipKey, Value], changes: Sequence[ValueChange], own: VipChurn | None = None
) -> list[BucketMoves]:
    """Count the buckets that these changes move, per VIP that has or gets a table. `own` is the prediction of a
    dataplane that makes its own table."""
    after = dict(held)
    for change in changes:
        if change.new is None:
            after.pop(change.key, None)
        else:
            after[change.key] = change.new.value
    vips = sorted({change.key.vip for change in changes})
    if own is not None:
        return [BucketMoves(vip, own(_of_vip(held, vip), _of_vip(after, vip))) for vip in vips]
    before_weights, after_weights = weights(held.items()), weights(after.items())
    none: Mapping[BackendId, BucketWeight] = {}
    moved = []
    for vip in vips:
        old, new = (_shape(objects.get(VipKey(vip))) for objects in (held, after))
        before = before_weights.get(vip, none)
        if old is not None and new is not None and old != new:
            # Another number of buckets gives every flow another bucket.
            found = Churn(new[0] if churn.has_flows(before) else 0, new[0])
        else:
            found = churn.predicted(before, after_weights.get(vip, none), (new or old or (DEFAULT_TABLE_SIZE,))[0])
        moved.append(BucketMoves(vip, found))
    return moved


def _of_vip(objects: Mapping[VipKey, Value], vip: Vip) -> dict[VipKey, Value]:
    return {key: value for key, value in objects.items() if key.vip == vip}


def _shape(settings: Value | None) -> tuple[int, int, bool | None] | None:
    """Attributes that decide the bucket of a flow, beside its backend: the number of buckets first."""
    if not isinstance(settings, VipSettings):
        return None
    return settings.table_size, settings.algorithm, settings.sticky


def _found(value: Value) -> Owned[Value]:
    """A dataplane does not record who wanted an object, so it is deleted only when every source is complete."""
    return Owned(value, "", 0)
