"""VIPs on the kernel: the dataplane that any Linux has.

The kernel is the only memory: what is held is read from the table. So a restart finds everything and writes nothing,
and a table that was deleted or edited behind our back is noticed within a second (B15); single buckets, with one of
the next full comparisons. Only our own table is ever named in a request (B18).

Structure (a VIP's chain and its map) is made before clients are led to it, and removed after they no longer are. All
that concerns one VIP's elements, a thousand buckets among them, is one transaction.
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

from holdfast.balancer.dataplane.api import Client, Counters, FlowPath, VipDataplaneInfo
from holdfast.balancer.dataplane.nftables import ruleset as structure
from holdfast.balancer.dataplane.nftables.cache import TableCache
from holdfast.balancer.dataplane.nftables.connection import NftConnection, NftError
from holdfast.balancer.dataplane.nftables.conntrack import Flows
from holdfast.balancer.dataplane.nftables.elements import Transaction, empty
from holdfast.balancer.dataplane.nftables.flow_hash import bucket
from holdfast.balancer.dataplane.nftables.layout import TRAFFIC, belongs_to_a_vip, buckets_of
from holdfast.balancer.dataplane.nftables.ruleset import TableShape
from holdfast.balancer.dataplane.nftables.snapshot import TableSnapshot, VipContent, traffic_in
from holdfast.balancer.dataplane.nftables.vip_update import UpdateSteps, VipUpdate, steps
from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import Value, Vip, VipKey, VipSettings
from holdfast.reconcile import Away, Change

log = structlog.get_logger(__name__)

T = TypeVar("T")
_GLANCE = 1.0
"""Seconds between two looks at the kernel's generation: what a deleted table costs."""


class NftablesDataplane:
    """A table of this shape in the network namespace of this process. The kernel is first met when it is needed."""

    def __init__(self, shape: TableShape) -> None:
        self._shape = shape
        self._lock = threading.Lock()
        self._met: tuple[NftConnection, TableCache] | None = None
        self._adopting = True
        self._glance_took = 0.0

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        def look(_kernel: NftConnection, sight: TableCache) -> dict[VipKey, Value]:
            # An upgrade may want other rules than those it finds: the first look is at what is served all the same.
            adopting, self._adopting = self._adopting, self._adopting and vips is not None
            picture = sight.look() if adopting or vips is not None else sight.look_closely()
            return picture.objects(vips, wrong=sight.wrong, lenient=adopting)

        return await self._do(look)

    async def apply(self, changes: Sequence[Change[VipKey, Value]]) -> Sequence[str | None]:
        return await self._do(lambda kernel, sight: _Writing(kernel, sight, self._shape).apply(changes))

    async def flush(self, vip: Vip, backend: BackendId) -> int:
        def end(kernel: NftConnection, sight: TableCache) -> int:
            placed = sight.look().services.get(vip, VipContent()).entries.get(backend)
            if placed is None:
                return 0
            ended = kernel.count_flows(placed.mark).get(placed.mark, Flows())
            kernel.end_flows(placed.mark)
            return ended.all

        return await self._do(end)

    async def counters(self) -> Mapping[VipKey, Counters]:
        def count(kernel: NftConnection, sight: TableCache) -> Mapping[VipKey, Counters]:
            picture = sight.look()
            traffic, flows = traffic_in(kernel.elements(TRAFFIC)), kernel.count_flows()
            found: dict[VipKey, Counters] = {}
            for vip, service in picture.services.items():
                for backend, placed in service.entries.items():
                    passed, now = traffic.get(placed.mark, Counters()), flows.get(placed.mark, Flows())
                    found[VipKey(vip, backend)] = replace(passed, flows=now.all, unanswered=now.unanswered)
            return found

        return await self._do(count)

    async def flow_path(self, vip: Vip, client: Client) -> FlowPath | None:
        """As the kernel has it, not as it should be."""

        def trace(kernel: NftConnection, sight: TableCache) -> FlowPath | None:
            service = sight.look().services.get(vip)
            if service is None or service.settings is None:
                return None
            owners = {placed.mark: backend for backend, placed in service.entries.items()}
            table, found = sight.buckets(vip), bucket(client, service.settings, self._shape.size)
            mark = int(table[found])
            established = kernel.mark_of_flow(vip, client) if client.port and client.to_port else None
            share = int(np.count_nonzero(table == mark)) if mark in owners else 0
            return FlowPath(found, owners.get(mark), share, owners.get(established or 0))

        return await self._do(trace)

    async def lost(self) -> None:
        while not await self._is_disturbed():  # noqa: ASYNC110 -- the kernel sets no event of ours
            # Where others change their tables all the time, looking at ours takes no more than a twentieth of the time.
            await asyncio.sleep(max(_GLANCE, 20 * self._glance_took))

    def describe(self) -> VipDataplaneInfo:
        return VipDataplaneInfo("nftables", self._shape.size, frozenset({"sticky", "damaged"}))

    @property
    def writes(self) -> int:
        """Transactions that were committed since the start."""
        return 0 if self._met is None else self._met[0].writes

    def close(self) -> None:
        if self._met is not None:
            self._met[0].close()
            self._met = None

    async def _is_disturbed(self) -> bool:
        """Whether somebody has changed what the table holds, since this was last asked."""

        def glance(_kernel: NftConnection, sight: TableCache) -> bool:
            began = time.monotonic()
            sight.look()
            self._glance_took = time.monotonic() - began
            disturbed, sight.disturbed = sight.disturbed, False
            return disturbed

        try:
            return await self._do(glance)
        except Away as away:
            log.debug(f"the tables cannot be looked at: {away}")
            return False

    async def _do(self, work: Callable[[NftConnection, TableCache], T]) -> T:
        """Off the event loop: a large table takes longer than a pulse should wait."""

        def alone() -> T:
            with self._lock:
                if self._met is None:
                    kernel = NftConnection(self._shape.table)
                    self._met = kernel, TableCache(kernel, self._shape)
                return work(*self._met)

        try:
            return await asyncio.to_thread(alone)
        except NftError as error:
            raise Away("dataplane", str(error)) from error


class _Writing:
    """One batch of changes."""

    def __init__(self, kernel: NftConnection, sight: TableCache, shape: TableShape) -> None:
        self._kernel = kernel
        self._sight = sight
        self._shape = shape

    def apply(self, changes: Sequence[Change[VipKey, Value]]) -> list[str | None]:
        turns: dict[Vip, VipUpdate] = {}
        errors: list[str | None] = []
        with self._sight.writing() as picture:
            for change in changes:
                vip = change.key.vip
                turn = turns.setdefault(vip, VipUpdate.of(vip, picture.services.get(vip, VipContent())))
                errors.append(turn.take(change))
            unled = {vip for vip, turn in turns.items() if turn.settings is not None and not picture.leads_to(vip)}
            self._prepare(picture, turns.values())
            failed = self._program(turns.values(), picture)
            self._finish(picture, turns.keys() - failed.keys())
            if unled:
                self._kernel.end_unled_flows(unled)
        return [error or failed.get(change.key.vip) for change, error in zip(changes, errors, strict=True)]

    def _prepare(self, picture: TableSnapshot, turns: Iterable[VipUpdate]) -> None:
        """The frame, and what new VIPs need before clients are led to them."""
        wanted = [(turn.vip, turn.settings) for turn in turns if turn.settings is not None]
        without_map = [vip for vip, _ in wanted if not picture.has_buckets(vip)]
        inactive = _inactive(picture, wanted)
        text = "" if picture.has_frame else self._frame()
        text += structure.buckets(self._shape, without_map) + structure.chains(self._shape, inactive)
        if text:
            self._kernel.restructure(text)
            picture.put_frame()
            picture.put_chains(inactive)
            picture.maps |= {buckets_of(vip, self._shape.size) for vip in without_map}
            for vip in without_map:
                self._sight.remember(vip, empty(self._shape.size))
        self._remove_strays(picture)

    def _frame(self) -> str:
        """B18: a table that is not ours is not made ours by its name."""
        table = self._shape.table
        if self._kernel.owner() not in (None, structure.OWNER):
            raise NftError(f"the table inet {table} is somebody else's: choose another balancer.dataplane.table")
        return structure.frame(self._shape)

    def _remove_strays(self, picture: TableSnapshot) -> None:
        if not picture.strays:
            return
        log.warning(f"{len(picture.strays)} elements of the table are not ours, or do not fit: they are removed")
        transaction = Transaction(self._shape.table)
        for name, element in picture.strays:
            transaction.delete(name, element)
        self._kernel.commit(transaction)
        picture.strays.clear()

    def _program(self, turns: Collection[VipUpdate], picture: TableSnapshot) -> Mapping[Vip, str]:
        """The VIPs' elements, then the end of flows that must not live: finding these among millions takes the kernel
        its time, and no VIP waits for those of another. One sentence for each VIP for which that cannot be done."""
        used = set(picture.marks())
        begun: dict[Vip, UpdateSteps] = {}
        failed: dict[Vip, str] = {}
        for turn in turns:
            with self._noting(turn.vip, failed):
                begun[turn.vip] = self._begin(turn, picture, used)
        for vip, told in begun.items():
            with self._noting(vip, failed):
                self._end(told)
                picture.put(vip, told.service)
        return failed

    @contextlib.contextmanager
    def _noting(self, vip: Vip, failed: dict[Vip, str]) -> Iterator[None]:
        """An error of one VIP is its own; nothing that is remembered of it counts."""
        try:
            yield
        except (NftError, maglev.TooManyBackends) as error:
            self._sight.remember(vip, None)
            self._sight.forget()
            failed[vip] = str(error)

    def _begin(self, turn: VipUpdate, picture: TableSnapshot, used: set[int]) -> UpdateSteps:
        gone = turn.settings is None
        before = empty(self._shape.size) if gone else self._sight.buckets(turn.vip)
        told = steps(turn, picture, before, used)
        if told.first:
            self._kernel.commit(told.first)
        self._sight.remember(turn.vip, None if gone else told.after)
        return told

    def _end(self, told: UpdateSteps) -> None:
        for mark in told.ended:
            self._kernel.end_flows(mark)
        if told.then:
            self._kernel.commit(told.then)

    def _finish(self, picture: TableSnapshot, made: Set[Vip]) -> None:
        """Changes the chains of VIPs that were made and that clients are led to already, and removes what nobody needs.
        Other VIPs stay as they are: the buckets that their rules would go over to need not be filled."""
        served = [(vip, one.settings) for vip in sorted(made) if (one := picture.services.get(vip)) is not None]
        differing = [
            (vip, settings) for vip, settings in served if settings is not None and not picture.has_chain(vip, settings)
        ]
        picture.put_chains(differing)
        chains, maps = picture.orphans()
        if strangers := [name for name in chains if not belongs_to_a_vip(name)]:
            log.warning(f"chains of the table are not ours, and are removed: {', '.join(strangers)}")
        text = structure.chains(self._shape, differing) + structure.removed(self._shape, chains, maps)
        if text:
            self._kernel.restructure(text)
            picture.remove_orphans()


def _inactive(picture: TableSnapshot, wanted: Iterable[tuple[Vip, VipSettings]]) -> list[tuple[Vip, VipSettings]]:
    """Those of the VIPs that no client is led to: their chains can be made in peace."""
    return [(vip, settings) for vip, settings in wanted if picture.services.get(vip, VipContent()).settings is None]
