"""nftables dataplane: VIPs in a table of the Linux kernel.

The kernel holds the only copy: the contents are read from the table. So a restart finds everything and writes nothing,
and a table that another program deleted or edited is noticed within a second (B15); single buckets, in one of the next
full comparisons. Requests name no table but our own (B18).

The structure of a VIP (its chain and its map) is created before packets are dispatched to it, and removed afterwards.
All elements of one VIP, a thousand buckets among them, change in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeVar

import numpy as np
import structlog

from holdfast.balancer.dataplane.api import Client, Counters, FlowPath, TrackedFlows, VipDataplaneInfo
from holdfast.balancer.dataplane.nftables import ruleset
from holdfast.balancer.dataplane.nftables.cache import TableCache
from holdfast.balancer.dataplane.nftables.connection import NftConnection, NftError
from holdfast.balancer.dataplane.nftables.conntrack import Flows
from holdfast.balancer.dataplane.nftables.flow_hash import bucket
from holdfast.balancer.dataplane.nftables.layout import belongs_to_a_vip, buckets_of
from holdfast.balancer.dataplane.nftables.ruleset import TableShape
from holdfast.balancer.dataplane.nftables.snapshot import TableSnapshot, VipContent, traffic_in
from holdfast.balancer.dataplane.nftables.tracking_table import tracked_flows
from holdfast.balancer.dataplane.nftables.vip_update import UpdateSteps, VipUpdate, steps
from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.vip import Objects, Value, Vip, VipKey, VipSettings, unencapsulated
from holdfast.netlink.nftables.elements import Transaction, empty
from holdfast.reconcile import Away, Change

log = structlog.get_logger(__name__)

T = TypeVar("T")
_POLL_SECONDS = 1.0
"""Interval between two reads of the kernel's generation; a deleted table goes unnoticed for so long."""


class NftablesDataplane:
    """A table of this shape in the network namespace of this process. The connection is opened on first use."""

    def __init__(self, shape: TableShape) -> None:
        self._shape = shape
        self._lock = threading.Lock()
        self._opened: tuple[NftConnection, TableCache] | None = None
        self._adopting = True
        self._poll_took = 0.0

    def canonical(self, vip: Vip, objects: Objects) -> Objects:
        return unencapsulated(vip, objects)

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        def contents(_kernel: NftConnection, cache: TableCache) -> dict[VipKey, Value]:
            # After an upgrade the rules may differ; the first read returns what is served all the same.
            adopting, self._adopting = self._adopting, self._adopting and vips is not None
            snapshot = cache.read() if adopting or vips is not None else cache.read_and_verify()
            return snapshot.objects(vips, wrong=cache.wrong, lenient=adopting)

        return await self._run_in_thread(contents)

    async def apply(self, changes: Sequence[Change[VipKey, Value]]) -> Sequence[str | None]:
        return await self._run_in_thread(lambda kernel, cache: _Batch(kernel, cache, self._shape).apply(changes))

    async def counters(self) -> Mapping[VipKey, Counters]:
        def count(kernel: NftConnection, cache: TableCache) -> Mapping[VipKey, Counters]:
            snapshot = cache.read()
            traffic, flows = traffic_in(kernel.elements(self._shape.counted), self._shape), kernel.count_flows()
            found: dict[VipKey, Counters] = {}
            for vip, content in snapshot.contents.items():
                for backend, placed in content.entries.items():
                    passed, now = traffic.get(placed.mark, Counters()), flows.get(placed.mark, Flows())
                    found[VipKey(vip, backend)] = replace(passed, flows=now.all, unanswered=now.unanswered)
            return found

        return await self._run_in_thread(count)

    async def flow_path(self, vip: Vip, client: Client) -> FlowPath | None:
        """Trace a flow as the kernel would handle it, not as desired."""

        def trace(kernel: NftConnection, cache: TableCache) -> FlowPath | None:
            content = cache.read().contents.get(vip)
            if content is None or content.settings is None:
                return None
            owners = {placed.mark: backend for backend, placed in content.entries.items()}
            settings = content.settings
            table, found = cache.buckets(vip, settings.table_size), bucket(client, settings)
            mark = int(table[found])
            established = kernel.mark_of_flow(vip, client) if client.port and client.to_port else None
            share = int(np.count_nonzero(table == mark)) if mark in owners else 0
            return FlowPath(found, settings.table_size, owners.get(mark), share, owners.get(established or 0))

        return await self._run_in_thread(trace)

    async def lost(self) -> str:
        # protection: B15
        while not await self._was_disturbed():  # noqa: ASYNC110 -- the kernel sets no event of ours
            # Where other programs write all the time, polling takes at most a twentieth of the time.
            await asyncio.sleep(max(_POLL_SECONDS, 20 * self._poll_took))
        return "another program changed or removed what is programmed"

    def describe(self) -> VipDataplaneInfo:
        return VipDataplaneInfo("nftables", frozenset({"sticky", "table_size", "algorithm", "damaged"}))

    @property
    def writes(self) -> int:
        """Transactions committed since the start."""
        return 0 if self._opened is None else self._opened[0].writes

    def tracked(self) -> TrackedFlows | None:
        return tracked_flows()

    def close(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    async def _was_disturbed(self) -> bool:
        """Tell whether another program has changed the contents of the table since the last call."""

        def poll(_kernel: NftConnection, cache: TableCache) -> bool:
            began = time.monotonic()
            cache.read()
            self._poll_took = time.monotonic() - began
            disturbed, cache.disturbed = cache.disturbed, False
            return disturbed

        try:
            return await self._run_in_thread(poll)
        except Away as away:
            log.debug("cannot read the table", error=str(away))
            return False

    async def _run_in_thread(self, work: Callable[[NftConnection, TableCache], T]) -> T:
        """Run work outside of the event loop, because reading a large table would delay the heartbeat."""

        def locked() -> T:
            with self._lock:
                if self._opened is None:
                    kernel = NftConnection(self._shape.table)
                    self._opened = kernel, TableCache(kernel, self._shape)
                return work(*self._opened)

        try:
            return await asyncio.to_thread(locked)
        except NftError as error:
            raise Away("dataplane", str(error)) from error


class _Batch:
    """One batch of changes."""

    def __init__(self, kernel: NftConnection, cache: TableCache, shape: TableShape) -> None:
        self._kernel = kernel
        self._cache = cache
        self._shape = shape

    def apply(self, changes: Sequence[Change[VipKey, Value]]) -> list[str | None]:
        updates: dict[Vip, VipUpdate] = {}
        errors: list[str | None] = []
        with self._cache.writing() as snapshot:
            for change in changes:
                vip = change.key.vip
                update = updates.setdefault(vip, VipUpdate.of(vip, snapshot.contents.get(vip, VipContent())))
                errors.append(update.take(change))
            undispatched = {
                vip
                for vip, update in updates.items()
                if update.settings is not None and not snapshot.dispatches_to(vip)
            }
            self._prepare(snapshot, updates.values())
            failed = self._program(updates.values(), snapshot)
            self._finish(snapshot, updates.keys() - failed.keys())
            if undispatched:
                self._kernel.end_undispatched_flows(undispatched)
        return [error or failed.get(change.key.vip) for change, error in zip(changes, errors, strict=True)]

    def _prepare(self, snapshot: TableSnapshot, updates: Iterable[VipUpdate]) -> None:
        """Create the frame, and the structure of new VIPs before packets are dispatched to them."""
        wanted = [(update.vip, update.settings) for update in updates if update.settings is not None]
        sizes = [(vip, settings.table_size) for vip, settings in wanted]
        without_map = [(vip, size) for vip, size in sizes if not snapshot.has_buckets(vip, size)]
        inactive = _inactive(snapshot, wanted)
        text = "" if snapshot.has_frame else self._frame()
        text += ruleset.buckets(self._shape, without_map) + ruleset.chains(self._shape, inactive)
        if text:
            self._kernel.restructure(text)
            snapshot.put_frame()
            snapshot.put_chains(inactive)
            snapshot.maps |= {buckets_of(vip, size) for vip, size in without_map}
            for vip, size in without_map:
                self._cache.set_buckets(vip, empty(size))
        self._remove_foreign_elements(snapshot)

    def _frame(self) -> str:
        """Text of the frame; refuses a table of another program with our name (protection: B18)."""
        table = self._shape.table
        if self._kernel.owner() not in (None, ruleset.OWNER):
            raise NftError(
                f"the table inet {table} belongs to another program: choose another balancer.dataplane.table"
            )
        return ruleset.frame(self._shape)

    def _remove_foreign_elements(self, snapshot: TableSnapshot) -> None:
        if not snapshot.foreign_elements:
            return
        log.warning("removing elements that are not ours, or do not fit", count=len(snapshot.foreign_elements))
        transaction = Transaction(self._shape.table)
        for name, element in snapshot.foreign_elements:
            transaction.delete(name, element)
        self._kernel.commit(transaction)
        snapshot.foreign_elements.clear()

    def _program(self, updates: Collection[VipUpdate], snapshot: TableSnapshot) -> Mapping[Vip, str]:
        """Write the elements of all VIPs, then kills flows: finding these among millions takes the kernel a while, and
        no VIP has to wait for those of another. Returns one sentence for each VIP that failed."""
        used = set(snapshot.marks())
        begun: dict[Vip, UpdateSteps] = {}
        failed: dict[Vip, str] = {}
        for update in updates:
            with self._collecting_error(update.vip, failed):
                begun[update.vip] = self._begin(update, snapshot, used)
        for vip, planned in begun.items():
            with self._collecting_error(vip, failed):
                self._end(planned)
                snapshot.put(vip, planned.content)
        return failed

    @contextlib.contextmanager
    def _collecting_error(self, vip: Vip, failed: dict[Vip, str]) -> Iterator[None]:
        """Record an error of one VIP, and discard what is cached about it."""
        try:
            yield
        except (NftError, maglev.TooManyBackends) as error:
            self._cache.set_buckets(vip, None)
            self._cache.invalidate()
            failed[vip] = str(error)

    def _begin(self, update: VipUpdate, snapshot: TableSnapshot, used: set[int]) -> UpdateSteps:
        settings = update.settings
        before = empty(0) if settings is None else self._cache.buckets(update.vip, settings.table_size)
        planned = steps(update, snapshot, before, used)
        if planned.first:
            self._kernel.commit(planned.first)
        self._cache.set_buckets(update.vip, None if settings is None else planned.after)
        return planned

    def _end(self, planned: UpdateSteps) -> None:
        for mark in planned.ended:
            self._kernel.end_flows(mark)
        if planned.then:
            self._kernel.commit(planned.then)

    def _finish(self, snapshot: TableSnapshot, made: Set[Vip]) -> None:
        """Replace the chains of updated VIPs to which packets are already dispatched, and remove orphans. Other VIPs
        stay as they are: the buckets that new rules of theirs would use may not be filled."""
        served = [(vip, one.settings) for vip in sorted(made) if (one := snapshot.contents.get(vip)) is not None]
        differing = [
            (vip, settings)
            for vip, settings in served
            if settings is not None and not snapshot.has_chain(vip, settings)
        ]
        snapshot.put_chains(differing)
        chains, maps = snapshot.orphans()
        if strangers := [name for name in chains if not belongs_to_a_vip(name) and name not in ruleset.OPTIONAL]:
            log.warning("removing chains that are not ours", chains=strangers)
        text = ruleset.chains(self._shape, differing) + ruleset.removed(self._shape, chains, maps)
        if text:
            self._kernel.restructure(text)
            snapshot.remove_orphans()


def _inactive(snapshot: TableSnapshot, wanted: Iterable[tuple[Vip, VipSettings]]) -> list[tuple[Vip, VipSettings]]:
    """VIPs to which no packet is dispatched, so that their chains can be created at any time."""
    return [(vip, settings) for vip, settings in wanted if snapshot.contents.get(vip, VipContent()).settings is None]
