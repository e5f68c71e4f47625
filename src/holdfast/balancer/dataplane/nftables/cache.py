"""How our table is seen: read when anybody may have changed it, remembered while nobody did.

The kernel counts every transaction of anybody. As long as its count is the one that we know of, by a look or by our own
writes, the picture in memory is the table. Else it is read again; if it is not what it was, we were disturbed (B15).
The tables of buckets are too large to be read at every turn: they are compared a few at a time.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import structlog

from holdfast.balancer.dataplane.nftables import elements
from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.dataplane.nftables.elements import Marks
from holdfast.balancer.dataplane.nftables.layout import BACKEND_MAPS, TRAFFIC, VIP_MAPS, buckets_of
from holdfast.balancer.dataplane.nftables.ruleset import TableShape
from holdfast.balancer.dataplane.nftables.snapshot import TableSnapshot, table_of
from holdfast.balancer.vip import Vip

log = structlog.get_logger(__name__)

_REMEMBERED = 64
"""Tables of buckets that are kept in memory, a quarter of a megabyte each."""
_TRIES = 3
_VERIFIED = 4
"""Tables of buckets that a full look compares with the kernel's."""


class TableCache:
    """Of one table. `disturbed`: somebody else changed what it holds; `wrong`: VIPs whose buckets are not theirs."""

    def __init__(self, kernel: NftConnection, shape: TableShape) -> None:
        self._kernel = kernel
        self._shape = shape
        self._generation: int | None = None
        self._picture = TableSnapshot(shape)
        self._buckets: OrderedDict[Vip, Marks] = OrderedDict()
        self._unverified: OrderedDict[Vip, None] = OrderedDict()
        self.wrong: set[Vip] = set()
        self.disturbed = False

    def look(self) -> TableSnapshot:
        """What is there now. Unchanged since the last look, as the generation tells, it is not read again."""
        generation = self._kernel.generation()
        if generation != self._generation:
            was, first = self._picture.objects(), self._generation is None
            self._see(generation)
            self.disturbed |= not first and self._picture.objects() != was
            self._distrust()
        return self._picture

    def look_closely(self) -> TableSnapshot:
        """What is there, whatever is remembered; and whether some of the tables of buckets are right."""
        picture = self.look()
        read = self._read()
        if read.objects() != picture.objects():
            log.warning("the table is not what was written to it: it is read again")
            self.forget()
            picture = self.look()
        self._verify(picture)
        return picture

    @contextlib.contextmanager
    def writing(self) -> Iterator[TableSnapshot]:
        """For writes that keep the picture up to date. After an error nothing that is remembered counts."""
        picture = self.look()
        generation, writes = self._generation, self._kernel.writes
        try:
            yield picture
        except BaseException:
            self.forget()
            raise
        expected = None if generation is None else generation + self._kernel.writes - writes
        if self._generation is not None and self._kernel.generation() == expected:
            self._generation = expected
            return
        self.forget()
        self.look()

    def forget(self) -> None:
        """The next look is a first one."""
        self._generation = None

    def buckets(self, vip: Vip) -> Marks:
        """The table of a VIP that has a map for it."""
        if vip not in self._buckets:
            size = self._shape.size
            self._hold(vip, elements.buckets(self._kernel.elements(buckets_of(vip, size)), size))
        return self._buckets[vip]

    def remember(self, vip: Vip, table: Marks | None) -> None:
        """The table was made this; None: it is not known, or there is none any more."""
        self.wrong.discard(vip)
        self._buckets.pop(vip, None)
        if table is not None:
            self._hold(vip, table)

    def _hold(self, vip: Vip, table: Marks) -> None:
        self._buckets[vip] = table
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)

    def _see(self, generation: int) -> None:
        """Reads everything. If others write all the while, it counts as of before, and the next look reads again."""
        for _ in range(_TRIES):
            self._picture, self._generation = self._read(), generation
            generation = self._kernel.generation()
            if generation == self._generation:
                return

    def _distrust(self) -> None:
        self._buckets.clear()
        self.wrong.clear()
        # Where others write all the time, those that still wait stay ahead: else only the first few were ever compared.
        there = self._picture.services
        waiting = [vip for vip in self._unverified if vip in there]
        self._unverified = OrderedDict.fromkeys([*waiting, *sorted(there)])

    def _read(self) -> TableSnapshot:
        picture = TableSnapshot(self._shape, self._kernel.rules(), self._kernel.maps())
        for vips in VIP_MAPS:
            picture.take_vips(vips, self._kernel.elements(vips.name))
        for backends in BACKEND_MAPS:
            picture.take_backends(backends, self._kernel.elements(backends.name))
        picture.take_counted(self._kernel.elements(TRAFFIC))
        return picture

    def _verify(self, picture: TableSnapshot) -> None:
        """Compares tables of buckets with the kernel's, those first that have waited longest."""
        for _ in range(min(_VERIFIED, len(self._unverified))):
            vip, _ = self._unverified.popitem(last=False)
            service = picture.services.get(vip)
            if service is None or service.settings is None or not picture.has_buckets(vip):
                continue
            placed = ((one, each.mark, each.entry.weight) for one, each in service.entries.items())
            if not np.array_equal(self.buckets(vip), table_of(placed, self._shape.size)):
                log.warning(f"the buckets of {vip} are not those that its entries make: they are made again")
                self.wrong.add(vip)
