"""Cache of our table: read when another program may have changed it, kept while none did.

The kernel counts every transaction of every program. While its count is the one that we know of, from a read or from
our own writes, the snapshot in memory equals the table. Otherwise it is read again; when the contents differ, another
program has disturbed us (B15). The tables of buckets are too large to be read each time: a few at a time are compared.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import structlog

from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.dataplane.nftables.layout import BACKEND_MAPS, VIP_MAPS, buckets_of
from holdfast.balancer.dataplane.nftables.ruleset import TableShape
from holdfast.balancer.dataplane.nftables.snapshot import TableSnapshot, table_of
from holdfast.balancer.maglev.table import ALGORITHM
from holdfast.balancer.vip import Vip
from holdfast.netlink.nftables import elements
from holdfast.netlink.nftables.elements import Marks

log = structlog.get_logger(__name__)

_REMEMBERED = 64
"""Number of bucket tables kept in memory, a quarter of a megabyte each."""
_TRIES = 3
_VERIFIED = 4
"""Number of bucket tables that a full read compares with the kernel's."""


class TableCache:
    """Cache of one table. `disturbed`: another program changed its contents; `wrong`: VIPs with wrong buckets."""

    def __init__(self, kernel: NftConnection, shape: TableShape) -> None:
        self._kernel = kernel
        self._shape = shape
        self._generation: int | None = None
        self._snapshot = TableSnapshot(shape)
        self._buckets: OrderedDict[Vip, Marks] = OrderedDict()
        self._unverified: OrderedDict[Vip, None] = OrderedDict()
        self.wrong: set[Vip] = set()
        self.disturbed = False

    def read(self) -> TableSnapshot:
        """Return the current contents; reads them only when the generation has changed."""
        generation = self._kernel.generation()
        if generation != self._generation:
            was, first = self._snapshot.objects(), self._generation is None
            self._read_stable(generation)
            self.disturbed |= not first and self._snapshot.objects() != was
            self._discard_buckets()
        return self._snapshot

    def read_and_verify(self) -> TableSnapshot:
        """Read the contents without relying on the cache, and verifies some of the bucket tables."""
        snapshot = self.read()
        read = self._read()
        if read.objects() != snapshot.objects():
            log.warning("the table differs from what was written; reading it again")
            self.invalidate()
            snapshot = self.read()
        self._verify(snapshot)
        return snapshot

    @contextlib.contextmanager
    def writing(self) -> Iterator[TableSnapshot]:
        """Context for writes that keep the snapshot up to date. An error invalidates the cache."""
        snapshot = self.read()
        generation, writes = self._generation, self._kernel.writes
        try:
            yield snapshot
        except BaseException:
            self.invalidate()
            raise
        expected = None if generation is None else generation + self._kernel.writes - writes
        if self._generation is not None and self._kernel.generation() == expected:
            self._generation = expected
            return
        self.invalidate()
        self.read()

    def invalidate(self) -> None:
        """Make the next read a full one."""
        self._generation = None

    def buckets(self, vip: Vip, size: int) -> Marks:
        """Bucket table of a VIP that has a map of that size."""
        if vip not in self._buckets or len(self._buckets[vip]) != size:
            self._store(vip, elements.buckets(self._kernel.elements(buckets_of(vip, size)), size))
        return self._buckets[vip]

    def set_buckets(self, vip: Vip, table: Marks | None) -> None:
        """Set the bucket table of a VIP; None when it is unknown or gone."""
        self.wrong.discard(vip)
        self._buckets.pop(vip, None)
        if table is not None:
            self._store(vip, table)

    def _store(self, vip: Vip, table: Marks) -> None:
        self._buckets[vip] = table
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)

    def _read_stable(self, generation: int) -> None:
        """Read everything. If others write meanwhile, the older generation is kept and the next read repeats it."""
        for _ in range(_TRIES):
            self._snapshot, self._generation = self._read(), generation
            generation = self._kernel.generation()
            if generation == self._generation:
                return

    def _discard_buckets(self) -> None:
        self._buckets.clear()
        self.wrong.clear()
        # Unverified tables stay first, or else only the first few would be compared while others write all the time.
        there = self._snapshot.contents
        waiting = [vip for vip in self._unverified if vip in there]
        self._unverified = OrderedDict.fromkeys([*waiting, *sorted(there)])

    def _read(self) -> TableSnapshot:
        snapshot = TableSnapshot(self._shape, self._kernel.rules(), self._kernel.maps())
        for vips in VIP_MAPS:
            snapshot.take_vips(vips, self._kernel.elements(vips.name))
        for backends in BACKEND_MAPS:
            snapshot.take_backends(backends, self._kernel.elements(backends.name))
        snapshot.take_counted(self._kernel.elements(self._shape.counted))
        return snapshot

    def _verify(self, snapshot: TableSnapshot) -> None:
        """Compare bucket tables with the kernel's, those first that have waited longest."""
        for _ in range(min(_VERIFIED, len(self._unverified))):
            vip, _ = self._unverified.popitem(last=False)
            content = snapshot.contents.get(vip)
            settings = None if content is None else content.settings
            if content is None or settings is None or not snapshot.has_buckets(vip, settings.table_size):
                continue
            if settings.algorithm != ALGORITHM:  # another version of this program built it
                continue
            size = settings.table_size
            entries = {one: each.entry for one, each in content.entries.items()}
            marks = {one: each.mark for one, each in content.entries.items()}
            if not np.array_equal(self.buckets(vip, size), table_of(entries, marks, size)):
                log.warning("the buckets of a VIP do not match its entries; rebuilding them", vip=str(vip))
                self.wrong.add(vip)
