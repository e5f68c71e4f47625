"""What our table holds, made of what the kernel lists. Pure.

Nothing is believed that does not fit together: an element that is not ours to read, an entry whose address is not the
one that its comment names, a VIP that leads elsewhere than to its own chain. Such elements are strays, and go with the
next change. A VIP is whole when its rules are the wanted ones and its map of buckets is there.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from holdfast.balancer.dataplane.api import Counters
from holdfast.balancer.dataplane.nftables import elements
from holdfast.balancer.dataplane.nftables import ruleset as structure
from holdfast.balancer.dataplane.nftables.elements import Element, Marks
from holdfast.balancer.dataplane.nftables.layout import (
    MAPS,
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
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings
from holdfast.netlink import wire

_EXPRESSION, _EXPRESSION_DATA = 7, 2
_COUNTER_BYTES, _COUNTER_PACKETS = 1, 2


@dataclass(frozen=True, slots=True)
class PlacedBackend:
    """A backend under a VIP, and the mark of its flows."""

    mark: int
    entry: BackendEntry


@dataclass(slots=True)
class VipContent:
    """One VIP. Without settings no packet is led to it: it was being removed."""

    settings: VipSettings | None = None
    entries: dict[BackendId, PlacedBackend] = field(default_factory=dict)


@dataclass(slots=True)
class TableSnapshot:
    """The table at one moment."""

    shape: TableShape
    rules: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Per chain the fingerprints of its rules."""
    maps: set[str] = field(default_factory=set)
    services: dict[Vip, VipContent] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)
    """The marks whose traffic is counted."""
    strays: list[tuple[str, Element]] = field(default_factory=list)

    @property
    def has_frame(self) -> bool:
        found = {chain: rules for chain, rules in self.rules.items() if not belongs_to_a_vip(chain)}
        return self.maps >= MAPS and found == structure.frame_fingerprints(self.shape)

    def has_chain(self, vip: Vip, settings: VipSettings) -> bool:
        """Whether the chain of the VIP is as it should be with these settings."""
        return self.rules.get(chain_of(vip)) == structure.vip_fingerprints(self.shape, vip, settings)

    def has_buckets(self, vip: Vip) -> bool:
        return buckets_of(vip, self.shape.size) in self.maps

    def leads_to(self, vip: Vip) -> bool:
        """Whether clients are led to the VIP, well or badly."""
        return self.has_frame and vip in self.services and self.services[vip].settings is not None

    def is_whole(self, vip: Vip) -> bool:
        service = self.services[vip]
        if service.settings is None or not self.has_buckets(vip) or not self.has_chain(vip, service.settings):
            return False
        return all(placed.mark in self.counted for placed in service.entries.values())

    def objects(
        self, vips: Iterable[Vip] | None = None, *, wrong: Container[Vip] = (), lenient: bool = False
    ) -> dict[VipKey, Value]:
        """What is served (of these VIPs). One of wrong buckets, or not whole, is damaged; lenient: as it is found."""
        has_frame = self.has_frame
        found: dict[VipKey, Value] = {}
        for vip in self.services if vips is None else vips:
            service = self.services.get(vip, VipContent())
            if service.settings is not None:
                is_damaged = vip in wrong or (not lenient and not (has_frame and self.is_whole(vip)))
                found[VipKey(vip)] = replace(service.settings, damaged=is_damaged)
            found |= {VipKey(vip, backend): placed.entry for backend, placed in service.entries.items()}
        return found

    def orphans(self) -> tuple[list[str], list[str]]:
        """Chains of VIPs that are no more, or of whoever made some in our table: with one too many the frame is never
        as it should be. Maps of VIPs that are no more, or of another size than the one that the VIP's rules use."""
        active = [vip for vip, service in self.services.items() if service.settings is not None]
        chains = {*map(chain_of, active), *structure.frame_fingerprints(self.shape)}
        return (
            sorted(self.rules.keys() - chains),
            sorted(name for name in self.maps - self._used_maps() if belongs_to_a_vip(name)),
        )

    def _used_maps(self) -> set[str]:
        """The maps of buckets that VIPs need. Rules that are not the wanted ones may lead to one of any size."""
        exact, of_any_size = set(), set()
        for vip, service in self.services.items():
            if service.settings is not None:
                name = buckets_of(vip, self.shape.size)
                if self.has_chain(vip, service.settings):
                    exact.add(name)
                else:
                    of_any_size.add(without_size(name))
        return {name for name in self.maps if name in exact or without_size(name) in of_any_size}

    def marks(self) -> Iterator[int]:
        for service in self.services.values():
            for placed in service.entries.values():
                yield placed.mark

    def take_vips(self, where: VipMap, datagrams: list[bytes]) -> None:
        """Takes the elements of a map of VIPs into the picture."""
        for element in elements.elements(datagrams):
            key = elements.key_of(element)
            try:
                vip = where.vip(key)
            except ValueError:
                self.strays.append((where.name, Element(key)))
                continue
            if vip_map(vip) != where or elements.data_of(element) != chain_of(vip).encode():
                self.strays.append((where.name, Element(key)))
                continue
            settings = settings_from(elements.comment_of(element))
            self.services.setdefault(vip, VipContent()).settings = settings

    def take_backends(self, where: BackendMap, datagrams: list[bytes]) -> None:
        for element in elements.elements(datagrams):
            raw = elements.key_of(element)
            mark = mark_in(raw)
            try:
                key, entry = entry_from(elements.comment_of(element))
            except ValueError:
                self.strays.append((where.name, Element(raw)))
                continue
            fits = backend_map(key) == where and where.data(key.backend) == elements.data_of(element)
            entries = self.services.setdefault(key.vip, VipContent()).entries
            if not fits or key.backend in entries or not is_mark(mark):
                self.strays.append((where.name, Element(raw)))
                continue
            entries[key.backend] = PlacedBackend(mark, entry)

    def take_counted(self, datagrams: list[bytes]) -> None:
        self.counted = {mark_in(elements.key_of(element)) for element in elements.elements(datagrams)}

    def put_frame(self) -> None:
        """The frame was made as it should be."""
        self.rules |= structure.frame_fingerprints(self.shape)
        self.maps |= MAPS

    def put_chains(self, vips: Iterable[tuple[Vip, VipSettings]]) -> None:
        self.rules |= {chain_of(vip): structure.vip_fingerprints(self.shape, vip, settings) for vip, settings in vips}

    def put(self, vip: Vip, service: VipContent) -> None:
        """The VIP was brought to this."""
        self.counted -= {placed.mark for placed in self.services.pop(vip, VipContent()).entries.values()}
        self.counted |= {placed.mark for placed in service.entries.values()}
        if service != VipContent():
            self.services[vip] = service

    def remove_orphans(self) -> None:
        """What nobody needs is gone."""
        chains, maps = self.orphans()
        self.rules = {chain: rules for chain, rules in self.rules.items() if chain not in chains}
        self.maps -= set(maps)


def mark_key(mark: int) -> bytes:
    return struct.pack("=I", mark)


def mark_in(key: bytes) -> int:
    """The mark that a key stands for; whatever the key is, as somebody may have made the map anew."""
    return int.from_bytes(key, sys.byteorder)


def table_of(placed: Iterable[tuple[BackendId, int, int]], size: int) -> Marks:
    """Per bucket the mark, from backends with their marks and weights."""
    known = {backend: (mark, weight) for backend, mark, weight in placed}
    serving, table = maglev.table({backend: weight for backend, (_, weight) in known.items()}, size)
    # The last one is what an empty table's -1 points to.
    marks = np.asarray([*(known[backend][0] for backend in serving), 0], np.uint32)
    return marks[table]


def traffic_in(datagrams: list[bytes]) -> Mapping[int, Counters]:
    """What has passed, by mark."""
    return dict(map(_counted, elements.elements(datagrams)))


def _counted(element: dict[int, memoryview]) -> tuple[int, Counters]:
    mark = mark_in(elements.key_of(element))
    if _EXPRESSION not in element:
        return mark, Counters()
    data = wire.attributes(wire.attributes(element[_EXPRESSION], 0)[_EXPRESSION_DATA], 0)
    packets, octets = (struct.unpack(">Q", data[kind])[0] for kind in (_COUNTER_PACKETS, _COUNTER_BYTES))
    return mark, Counters(packets=packets, bytes=octets)
