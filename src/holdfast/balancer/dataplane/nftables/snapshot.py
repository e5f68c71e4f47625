"""Snapshot of our table, built from what the kernel lists. Pure.

Inconsistent elements are not trusted: an element that cannot be decoded, an entry whose address differs from its
comment, a VIP that leads to another chain than its own. Such elements are foreign, and the next change removes them. A
VIP is whole when its rules are the wanted ones and its bucket map exists.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from holdfast.balancer.dataplane.api import Counters
from holdfast.balancer.dataplane.nftables import ruleset
from holdfast.balancer.dataplane.nftables.layout import (
    MAPS,
    OPENED,
    TRAFFIC,
    BackendMap,
    VipMap,
    backend_map,
    belongs_to_a_vip,
    buckets_of,
    chain_of,
    entry_from,
    is_mark,
    settings_from,
    vip_map,
    without_size,
)
from holdfast.balancer.dataplane.nftables.ruleset import TableShape
from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.maglev.table import BackendId, BucketWeight
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings
from holdfast.netlink import wire
from holdfast.netlink.nftables import elements
from holdfast.netlink.nftables.elements import Element, Marks

_EXPRESSION, _EXPRESSION_DATA = 7, 2
_COUNTER_BYTES, _COUNTER_PACKETS = 1, 2


@dataclass(frozen=True, slots=True)
class PlacedBackend:
    """Entry of a backend, and the mark of its flows."""

    mark: int
    entry: BackendEntry


@dataclass(slots=True)
class VipContent:
    """Contents of one VIP. Without settings no packet is dispatched to it: it was being removed."""

    settings: VipSettings | None = None
    entries: dict[BackendId, PlacedBackend] = field(default_factory=dict)


@dataclass(slots=True)
class TableSnapshot:
    """Contents of the table at one moment."""

    shape: TableShape
    rules: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fingerprints of the rules per chain."""
    maps: set[str] = field(default_factory=set)
    contents: dict[Vip, VipContent] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)
    """Marks whose traffic is counted."""
    foreign_elements: list[tuple[str, Element]] = field(default_factory=list)

    @property
    def has_frame(self) -> bool:
        found = {chain: rules for chain, rules in self.rules.items() if not belongs_to_a_vip(chain)}
        return self.maps >= {*MAPS, self.shape.counted} and found == ruleset.frame_fingerprints(self.shape)

    def has_chain(self, vip: Vip, settings: VipSettings) -> bool:
        """Tell whether the chain of the VIP has the rules for these settings."""
        return self.rules.get(chain_of(vip)) == ruleset.vip_fingerprints(self.shape, vip, settings)

    def has_buckets(self, vip: Vip, size: int) -> bool:
        return buckets_of(vip, size) in self.maps

    def dispatches_to(self, vip: Vip) -> bool:
        """Tell whether packets are dispatched to the VIP, correctly or not."""
        return self.has_frame and vip in self.contents and self.contents[vip].settings is not None

    def is_whole(self, vip: Vip) -> bool:
        content = self.contents[vip]
        settings = content.settings
        if settings is None or not self.has_buckets(vip, settings.table_size) or not self.has_chain(vip, settings):
            return False
        return all(placed.mark in self.counted for placed in content.entries.values())

    def objects(
        self, vips: Iterable[Vip] | None = None, *, wrong: Container[Vip] = (), lenient: bool = False
    ) -> dict[VipKey, Value]:
        """Objects (of these VIPs). A VIP with wrong buckets, or not whole, is damaged; `lenient` ignores the latter."""
        has_frame = self.has_frame
        found: dict[VipKey, Value] = {}
        for vip in self.contents if vips is None else vips:
            content = self.contents.get(vip, VipContent())
            if content.settings is not None:
                is_damaged = vip in wrong or (not lenient and not (has_frame and self.is_whole(vip)))
                found[VipKey(vip)] = replace(content.settings, damaged=is_damaged)
            found |= {VipKey(vip, backend): placed.entry for backend, placed in content.entries.items()}
        return found

    def orphans(self) -> tuple[list[str], list[str]]:
        """Chains of deleted VIPs and foreign chains, with which the frame would always differ; maps of deleted VIPs,
        or of another size than the one that the VIP's rules use; the set of another way of counting."""
        active = [vip for vip, content in self.contents.items() if content.settings is not None]
        chains = {*map(chain_of, active), *ruleset.frame_fingerprints(self.shape)}
        return (
            sorted(self.rules.keys() - chains),
            sorted(name for name in self.maps - self._used_maps() if belongs_to_a_vip(name)) + self._unused_counters(),
        )

    def _unused_counters(self) -> list[str]:
        """The set that this shape does not use, once no rules of a VIP use it either."""
        served = {vip: one.settings for vip, one in self.contents.items() if one.settings is not None}
        if not all(self.has_chain(vip, settings) for vip, settings in served.items()):
            return []
        return sorted(self.maps & {OPENED, TRAFFIC} - {self.shape.counted})

    def _used_maps(self) -> set[str]:
        """Bucket maps in use. Outdated rules of a VIP may use a map of any size."""
        exact, of_any_size = set(), set()
        for vip, content in self.contents.items():
            if content.settings is not None:
                name = buckets_of(vip, content.settings.table_size)
                if self.has_chain(vip, content.settings):
                    exact.add(name)
                else:
                    of_any_size.add(without_size(name))
        return {name for name in self.maps if name in exact or without_size(name) in of_any_size}

    def marks(self) -> Iterator[int]:
        for content in self.contents.values():
            for placed in content.entries.values():
                yield placed.mark

    def take_vips(self, where: VipMap, datagrams: list[bytes]) -> None:
        """Add the elements of a map of VIPs."""
        for element in elements.elements(datagrams):
            key = elements.key_of(element)
            try:
                vip = where.vip(key)
            except ValueError:
                self.foreign_elements.append((where.name, Element(key)))
                continue
            if vip_map(vip) != where or elements.data_of(element) != chain_of(vip).encode():
                self.foreign_elements.append((where.name, Element(key)))
                continue
            settings = list(settings_from(elements.comment_of(element), self._sizes(vip)))
            fitting = (one for one in settings if self.has_chain(vip, one))
            self.contents.setdefault(vip, VipContent()).settings = next(fitting, settings[0])

    def _sizes(self, vip: Vip) -> list[int]:
        """Sizes of the bucket maps of a VIP."""
        stem = without_size(buckets_of(vip, 0))
        found = (name.rpartition("-")[2] for name in sorted(self.maps) if without_size(name) == stem)
        return [int(size) for size in found if size.isdecimal()]

    def take_backends(self, where: BackendMap, datagrams: list[bytes]) -> None:
        for element in elements.elements(datagrams):
            raw = elements.key_of(element)
            mark = mark_in(raw)
            try:
                key, entry = entry_from(elements.comment_of(element))
            except ValueError:
                self.foreign_elements.append((where.name, Element(raw)))
                continue
            fits = backend_map(key) == where and where.data(key.backend) == elements.data_of(element)
            entries = self.contents.setdefault(key.vip, VipContent()).entries
            if not fits or key.backend in entries or not is_mark(mark):
                self.foreign_elements.append((where.name, Element(raw)))
                continue
            entries[key.backend] = PlacedBackend(mark, entry)

    def take_counted(self, datagrams: list[bytes]) -> None:
        self.counted = {mark_in(elements.key_of(element)) for element in elements.elements(datagrams)}

    def put_frame(self) -> None:
        """Note that the frame was written."""
        self.rules |= ruleset.frame_fingerprints(self.shape)
        self.maps |= {*MAPS, self.shape.counted}

    def put_chains(self, vips: Iterable[tuple[Vip, VipSettings]]) -> None:
        self.rules |= {chain_of(vip): ruleset.vip_fingerprints(self.shape, vip, settings) for vip, settings in vips}

    def put(self, vip: Vip, content: VipContent) -> None:
        """Note that the VIP was updated."""
        self.counted -= {placed.mark for placed in self.contents.pop(vip, VipContent()).entries.values()}
        self.counted |= {placed.mark for placed in content.entries.values()}
        if content != VipContent():
            self.contents[vip] = content

    def remove_orphans(self) -> None:
        """Note that the orphans were removed."""
        chains, maps = self.orphans()
        self.rules = {chain: rules for chain, rules in self.rules.items() if chain not in chains}
        self.maps -= set(maps)


def mark_key(mark: int) -> bytes:
    return struct.pack("=I", mark)


def mark_in(key: bytes) -> int:
    """Mark in a key, of any length: another program may have created the map with another type."""
    return int.from_bytes(key, sys.byteorder)


def table_of(entries: Mapping[BackendId, BackendEntry], marks: Mapping[BackendId, int], size: int) -> Marks:
    """Mark per bucket."""
    weights = {backend: BucketWeight(entry.base, entry.weight) for backend, entry in entries.items()}
    members, table = maglev.table(weights, size)
    # The last item is for the -1 of an empty table.
    return np.asarray([*(marks[backend] for backend in members), 0], np.uint32)[table]


def traffic_in(datagrams: list[bytes], shape: TableShape) -> Mapping[int, Counters]:
    """Traffic by mark."""
    found = dict(map(_counted, elements.elements(datagrams)))
    if shape.packets:
        return {mark: Counters(packets=packets, bytes=octets) for mark, (packets, octets) in found.items()}
    return {mark: Counters(opened=packets) for mark, (packets, _) in found.items()}


def _counted(element: dict[int, memoryview]) -> tuple[int, tuple[int, int]]:
    """Mark, packets and bytes."""
    mark = mark_in(elements.key_of(element))
    if _EXPRESSION not in element:
        return mark, (0, 0)
    data = wire.attributes(wire.attributes(element[_EXPRESSION], 0)[_EXPRESSION_DATA], 0)
    packets, octets = (struct.unpack(">Q", data[kind])[0] for kind in (_COUNTER_PACKETS, _COUNTER_BYTES))
    return mark, (packets, octets)
