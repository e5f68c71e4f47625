"""VIPs on the kernel: the dataplane that any Linux has.

The kernel is the only memory: what is held is read from the table, and read again whenever the kernel's generation says
that anybody changed anything. So a restart finds everything and writes nothing, and a table that was deleted or edited
behind our back is noticed within a second (B15). Only our own table is ever named in a request (B18).

Structure (a VIP's chain and its map) is made before clients are led to it, and removed after they no longer are. All
that concerns one VIP's elements, a thousand buckets among them, is one transaction.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import structlog

from holdfast.balancer import maglev
from holdfast.balancer.dataplane import Client, Counters, Course, Description
from holdfast.balancer.dataplane.nftables import elements, structure
from holdfast.balancer.dataplane.nftables.elements import Marks, Transaction, empty
from holdfast.balancer.dataplane.nftables.flow import bucket
from holdfast.balancer.dataplane.nftables.kernel import Kernel, KernelError
from holdfast.balancer.dataplane.nftables.layout import (
    BACKEND_MAPS,
    TRAFFIC,
    VIP_MAPS,
    buckets_of,
)
from holdfast.balancer.dataplane.nftables.picture import Picture, Service, table_of
from holdfast.balancer.dataplane.nftables.structure import Shape
from holdfast.balancer.dataplane.nftables.turn import Turn, steps
from holdfast.balancer.maglev import Identity
from holdfast.balancer.vip import Key, Settings, Value, Vip
from holdfast.reconcile import Away, Change

log = structlog.get_logger(__name__)

T = TypeVar("T")
_GLANCE = 1.0
"""Seconds between two looks at the kernel's generation: what a deleted table costs."""
_REMEMBERED = 64
"""Tables of buckets that are kept in memory, a quarter of a megabyte each."""
_VERIFIED = 4
"""Tables of buckets that a full look compares with the kernel's."""


class Nftables:
    """A table of this shape in the network namespace of this process. The kernel is first met when it is needed."""

    def __init__(self, shape: Shape) -> None:
        self._met: Kernel | None = None
        self._shape = shape
        self._lock = threading.Lock()
        self._generation: int | None = None
        self._picture = Picture(shape)
        self._adopting = True
        self._disturbed = False
        self._buckets: OrderedDict[Vip, Marks] = OrderedDict()
        self._unverified: OrderedDict[Vip, None] = OrderedDict()
        self._wrong: set[Vip] = set()

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[Key, Value]:
        def look() -> dict[Key, Value]:
            picture = self._look()
            if vips is None and not self._adopting:
                self._verify(picture)
            # An upgrade may want other rules than those it finds: the first look is at what is served all the same.
            found = picture.objects(lenient=self._adopting)
            self._adopting &= vips is not None
            return {
                key: value
                for key, value in found.items()
                if key.vip not in self._wrong and (vips is None or key.vip in vips)
            }

        return await self._do(look)

    async def apply(self, changes: Sequence[Change[Key, Value]]) -> Sequence[str | None]:
        return await self._do(lambda: self._apply(changes))

    async def flush(self, vip: Vip, backend: Identity) -> int:
        def end() -> int:
            placed = self._look().services.get(vip, Service()).entries.get(backend)
            if placed is None:
                return 0
            ended = self._kernel.count_flows(placed.mark).get(placed.mark, 0)
            self._kernel.end_flows(placed.mark)
            return ended

        return await self._do(end)

    async def counters(self) -> Mapping[Key, Counters]:
        def count() -> Mapping[Key, Counters]:
            picture = self._look()
            picture.take_traffic(self._kernel.elements(TRAFFIC))
            flows = self._kernel.count_flows()
            return {
                Key(vip, backend): replace(
                    picture.traffic.get(placed.mark, Counters()), flows=flows.get(placed.mark, 0)
                )
                for vip, service in picture.services.items()
                for backend, placed in service.entries.items()
            }

        return await self._do(count)

    async def course(self, vip: Vip, client: Client) -> Course | None:
        """As the kernel has it, not as it should be."""

        def trace() -> Course | None:
            service = self._look().services.get(vip)
            if service is None or service.settings is None:
                return None
            owners = {placed.mark: backend for backend, placed in service.entries.items()}
            table, found = self._read_buckets(vip), bucket(client, service.settings, self._shape.size)
            mark = int(table[found])
            established = self._kernel.mark_of_flow(vip, client) if client.port and client.to_port else None
            share = int(np.count_nonzero(table == mark)) if mark in owners else 0
            return Course(found, owners.get(mark), share, owners.get(established or 0))

        return await self._do(trace)

    async def lost(self) -> None:
        while not self._disturbed:
            await asyncio.sleep(_GLANCE)
            try:
                await self._do(self._look)
            except Away as away:
                log.debug(f"the tables cannot be looked at: {away}")
        self._disturbed = False

    def describe(self) -> Description:
        return Description("nftables", self._shape.size, frozenset({"sticky"}))

    @property
    def writes(self) -> int:
        """Transactions that were committed since the start."""
        return 0 if self._met is None else self._met.writes

    def close(self) -> None:
        if self._met is not None:
            self._met.close()
            self._met = None

    @property
    def _kernel(self) -> Kernel:
        if self._met is None:
            self._met = Kernel(self._shape.table)
        return self._met

    async def _do(self, work: Callable[[], T]) -> T:
        """Off the event loop: a large table takes longer than a pulse should wait."""

        def alone() -> T:
            with self._lock:
                return work()

        try:
            return await asyncio.to_thread(alone)
        except KernelError as error:
            self._generation = None
            raise Away("dataplane", str(error)) from error

    def _look(self) -> Picture:
        """What is there now. Unchanged since the last look, as the generation tells, it is not read again."""
        generation = self._kernel.generation()
        if generation != self._generation:
            was, first = self._picture.objects(), self._generation is None
            self._see(generation)
            self._disturbed |= not first and self._picture.objects() != was
            self._distrust()
        return self._picture

    def _look_after(self, generation: int | None, writes: int) -> Picture:
        """What is there after this many writes of ours, counted from that generation."""
        now = self._kernel.generation()
        self._see(now)
        if generation is None or now != generation + writes:
            self._distrust()
        return self._picture

    def _see(self, generation: int) -> None:
        while generation != self._generation:
            self._picture, self._generation = self._read(), generation
            generation = self._kernel.generation()

    def _distrust(self) -> None:
        """Somebody else has changed something, perhaps in our table: its large part is looked at little by little."""
        self._buckets.clear()
        self._wrong.clear()
        self._unverified = OrderedDict.fromkeys(sorted(self._picture.services))

    def _read(self) -> Picture:
        picture = Picture(self._shape, self._kernel.rules(), frozenset(self._kernel.maps()))
        for vips in VIP_MAPS:
            picture.take_vips(vips, self._kernel.elements(vips.name))
        for backends in BACKEND_MAPS:
            picture.take_backends(backends, self._kernel.elements(backends.name))
        picture.take_traffic(self._kernel.elements(TRAFFIC))
        return picture

    def _verify(self, picture: Picture) -> None:
        """Compares some tables of buckets with the kernel's, those first that have waited longest."""
        for _ in range(min(_VERIFIED, len(self._unverified))):
            vip, _ = self._unverified.popitem(last=False)
            service = picture.services[vip]
            if service.settings is None or not picture.has_buckets(vip):
                continue
            placed = ((one, each.mark, each.entry.weight) for one, each in service.entries.items())
            if not np.array_equal(self._read_buckets(vip), table_of(placed, self._shape.size)):
                log.warning(f"the buckets of {vip} are not those that its entries make: they are made again")
                self._wrong.add(vip)

    def _read_buckets(self, vip: Vip) -> Marks:
        if vip not in self._buckets:
            size = self._shape.size
            found = elements.buckets(self._kernel.elements(buckets_of(vip, size)), size)
            self._remember(vip, found)
        return self._buckets[vip]

    def _remember(self, vip: Vip, table: Marks) -> None:
        self._buckets[vip] = table
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)

    def _apply(self, changes: Sequence[Change[Key, Value]]) -> list[str | None]:
        picture = self._look()
        generation, writes = self._generation, self._kernel.writes
        turns: dict[Vip, Turn] = {}
        errors: list[str | None] = []
        for change in changes:
            vip = change.key.vip
            turn = turns.setdefault(vip, Turn.of(vip, picture.services.get(vip, Service())))
            errors.append(turn.take(change))
        self._prepare(picture, turns.values())
        used = set(picture.marks())
        failed = {vip: error for vip, turn in turns.items() if (error := self._program(turn, picture, used))}
        self._finish(generation, writes)
        return [error or failed.get(change.key.vip) for change, error in zip(changes, errors, strict=True)]

    def _prepare(self, picture: Picture, turns: Iterable[Turn]) -> None:
        """The frame, and what new VIPs need before clients are led to them."""
        wanted = [(turn.vip, turn.settings) for turn in turns if turn.settings is not None]
        text = "" if picture.has_frame else structure.frame(self._shape)
        text += structure.buckets(self._shape, (vip for vip, _ in wanted if not picture.has_buckets(vip)))
        text += structure.chains(self._shape, _inactive(picture, wanted))
        if text:
            self._kernel.restructure(text)
        if picture.strays:
            log.warning(f"{len(picture.strays)} elements of the table are not ours, or do not fit: they are removed")
            transaction = Transaction(self._shape.table)
            for name, element in picture.strays:
                transaction.delete(name, element)
            self._kernel.commit(transaction)

    def _program(self, turn: Turn, picture: Picture, used: set[int]) -> str | None:
        try:
            before = self._read_buckets(turn.vip) if picture.has_buckets(turn.vip) else empty(self._shape.size)
            told = steps(turn, picture, before, used)
            if told.first:
                self._kernel.commit(told.first)
            for mark in told.ended:
                self._kernel.end_flows(mark)
            if told.then:
                self._kernel.commit(told.then)
        except (KernelError, maglev.TooMany) as error:
            self._buckets.pop(turn.vip, None)
            return str(error)
        if turn.settings is None:
            self._buckets.pop(turn.vip, None)
        else:
            self._remember(turn.vip, told.after)
        self._wrong.discard(turn.vip)
        return None

    def _finish(self, generation: int | None, writes: int) -> None:
        """Looks at what there is now, changes chains that clients are led to already, removes what nobody needs."""
        picture = self._look_after(generation, self._kernel.writes - writes)
        served = [(vip, one.settings) for vip, one in picture.services.items() if one.settings is not None]
        differing = [(vip, settings) for vip, settings in served if not picture.has_chain(vip, settings)]
        text = structure.chains(self._shape, (each for each in differing if picture.has_buckets(each[0])))
        text += structure.removed(self._shape, *picture.orphans())
        if text:
            self._kernel.restructure(text)
            self._look_after(generation, self._kernel.writes - writes)


def _inactive(picture: Picture, wanted: Iterable[tuple[Vip, Settings]]) -> list[tuple[Vip, Settings]]:
    """Those of the VIPs that no client is led to: their chains can be made in peace."""
    return [(vip, settings) for vip, settings in wanted if picture.services.get(vip, Service()).settings is None]
