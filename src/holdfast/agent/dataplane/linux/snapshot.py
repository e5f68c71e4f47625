"""Snapshot of our objects in the kernel, read whole, as claims.

Ours are the routes in our table with our protocol number, the nexthops and rules with that number, the neighbours with
that number on our tunnel devices, and every forwarding entry of those devices. Nothing else is in the snapshot, so
nothing else can be pruned (N14).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import islice, repeat
from typing import NamedTuple, TypeVar, cast

from holdfast.agent.claims import (
    GUARD_KINDS,
    ClaimKey,
    ClaimKind,
    FdbEntry,
    LocalRoute,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    RemoteRoute,
    RoutingRule,
    Shape,
    TunnelAddress,
    device,
    tunnel_address,
)
from holdfast.agent.dataplane.linux.devices import FAMILIES, Devices
from holdfast.agent.dataplane.linux.guard.guard import Guard
from holdfast.agent.dataplane.linux.interfaces import read_interfaces
from holdfast.agent.dataplane.linux.nexthop_ids import NexthopIds
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import neighbours, nexthops, routes, rules
from holdfast.netlink.addresses import SIZES, mac_text, text
from holdfast.netlink.routes import RouteMark
from holdfast.netlink.socket import Netlink
from holdfast.runtime.cooperative import Steps

SOCKET_FAMILIES = {4: neighbours.IPV4, 6: neighbours.IPV6}
MAC_BITS = 48
FAMILY_OF = {4: 4, 16: 6}
"""By the number of octets of an address."""
TUNNEL_KINDS = (ClaimKind.FORWARDING, ClaimKind.NEIGHBOUR)
OWN_KINDS = (ClaimKind.DEVICE, ClaimKind.ADDRESS)
TUNNEL_PLACES = frozenset((kind, family) for kind in TUNNEL_KINDS for family in FAMILIES)
_AT_A_TIME = 1_000
SEVERAL_METRICS = -1
"""Metric of a place with several routes of ours: unlike any wanted one."""
_INTERFACES_AT_A_TIME = 100

V = TypeVar("V")


Place = tuple[ClaimKind, int]
"""Kind and family: objects that are read together."""


class ClaimColumns(NamedTuple):
    """Columns as read, and the claims they stand for: equal columns stand for the same claims."""

    keys: list[int]
    lengths: list[int]
    values: Sequence[object]
    claims: Mapping[ClaimKey, Shape]


class KernelSnapshot:
    """Our objects, and the IDs of the nexthop objects."""

    def __init__(self, first: int, before: KernelSnapshot | None = None) -> None:
        """`before` is of the same kernel at an earlier time: unchanged parts are reused."""
        self.shapes: dict[ClaimKey, Shape] = {}
        self.nexthop_ids: NexthopIds = NexthopIds(first, None if before is None else before.nexthop_ids)
        self.nexthop_devices: set[int] = set()
        """Devices that our nexthops lead through."""
        self.tunnels: Mapping[int, int] = {}
        """Families of our tunnel devices, by number, when the snapshot was taken."""
        self.uplinks: Set[str] = frozenset()
        """Devices that have to forward for our interfaces to be of use, when the snapshot was taken."""
        self._known: dict[Place, ClaimColumns] = dict(before._known) if before is not None else {}
        self.local: dict[int, set[str]] = {family: set() for family in FAMILIES}
        """Devices to which our routes of a family led at some time since the snapshot was taken."""
        self._routes: dict[Shape, set[ClaimKey]] | None = None
        """Index of the routes, if one was needed since the snapshot was taken."""

    def add(
        self,
        place: Place,
        keys: list[int],
        lengths: list[int],
        values: Sequence[V],
        make: Callable[[Sequence[V]], Iterable[Shape]],
    ) -> Steps[None]:
        """Add the objects of one kind and family, as columns; `make` turns values into shapes."""
        known = self._known.get(place)
        if known is None or (known.keys, known.lengths, known.values) != (keys, lengths, values):
            claims: dict[ClaimKey, Shape] = {}
            made = map(ClaimKey._make, zip(repeat(place[0]), repeat(place[1]), keys, lengths, strict=False))
            pairs = zip(made, make(values), strict=True)
            while some := dict(islice(pairs, _AT_A_TIME)):
                claims |= some
                yield
            known = self._known[place] = ClaimColumns(keys, lengths, values, claims)
        self.shapes.update(known.claims)
        yield

    def put(self, key: ClaimKey, shape: Shape) -> None:
        self.pop(key)
        self.shapes[key] = shape
        if key.kind is not ClaimKind.ROUTE:
            return
        if isinstance(shape, LocalRoute):
            self.local[key.family].add(shape.interface)
        if self._routes is not None:
            self._routes.setdefault(shape, set()).add(key)

    def pop(self, key: ClaimKey) -> Shape | None:
        """Take an object out; None if it is not in it."""
        shape = self.shapes.pop(key, None)
        if shape is not None and self._routes is not None and key.kind is ClaimKind.ROUTE:
            self._routes[shape].discard(key)
        return shape

    def routes_like(self, shape: Shape) -> Set[ClaimKey]:
        """Routes of that shape. The first call after a read of the kernel indexes them; events ask again and again."""
        return self._indexed().get(shape, frozenset())

    def _indexed(self) -> dict[Shape, set[ClaimKey]]:
        if self._routes is None:
            self._routes = {}
            for key, one in self.shapes.items():
                if key.kind is ClaimKind.ROUTE:
                    self._routes.setdefault(one, set()).add(key)
        return self._routes

    def drop_routes_via(self, gateways: Set[str]) -> None:
        """Drop the routes of deleted nexthops, as the kernel does."""
        for shape in list(self._indexed()):
            if isinstance(shape, RemoteRoute) and shape.via in gateways:
                for key in list(self.routes_like(shape)):
                    self.pop(key)

    def replace(self, places: Collection[Place], part: KernelSnapshot) -> None:
        """Take over the objects of these kinds and families."""
        for key in [key for key in self.shapes if key[:2] in places]:
            self.pop(key)
        for key, shape in part.shapes.items():
            self.put(key, shape)
        self._known |= {place: part._known[place] for place in places if place in part._known}


def take(
    kernel: Netlink, settings: LinuxSettings, devices: Devices, before: KernelSnapshot, guard: Guard
) -> Steps[KernelSnapshot]:
    """Read everything. Raises `DumpInterrupted` and OSError."""
    devices.read()
    snapshot = KernelSnapshot(settings.first_nexthop, before)
    snapshot.tunnels, snapshot.uplinks = devices.tunnel_numbers(), devices.uplinks()
    for family in FAMILIES:
        take_rules(kernel, settings, family, snapshot)
        snapshot.shapes |= own_tunnel(devices, family)
        yield from take_tunnel(kernel, settings, devices, family, snapshot)
    yield from take_nexthops(kernel, settings, devices, snapshot)
    for family in FAMILIES:
        yield from take_routes(kernel, settings, devices, family, snapshot)
        yield from take_interfaces(kernel, settings, devices, family, snapshot)
    snapshot.shapes |= guard.read()
    return snapshot


def retake(
    kernel: Netlink, settings: LinuxSettings, devices: Devices, places: Set[Place], into: KernelSnapshot, guard: Guard
) -> Steps[None]:
    """Read again the objects of these places, which are all but nexthops. Raises `DumpInterrupted` and OSError, and
    leaves the snapshot as it was then."""
    part = KernelSnapshot(settings.first_nexthop, into)
    part.nexthop_ids, part.local = into.nexthop_ids, into.local
    on_tunnels = {(kind, family) for _, family in places & TUNNEL_PLACES for kind in TUNNEL_KINDS}
    guarded = {place for place in places if place[0] in GUARD_KINDS}
    if guarded:
        part.shapes |= {key: shape for key, shape in guard.read().items() if key[:2] in guarded}
    for kind, family in sorted(places - TUNNEL_PLACES - guarded):
        if kind is ClaimKind.RULE:
            take_rules(kernel, settings, family, part)
        elif kind is ClaimKind.INTERFACE:
            yield from take_interfaces(kernel, settings, devices, family, part)
        elif kind in OWN_KINDS:
            part.shapes |= {key: shape for key, shape in own_tunnel(devices, family).items() if key.kind is kind}
        else:
            yield from take_routes(kernel, settings, devices, family, part)
    for family in sorted({family for _, family in on_tunnels}):
        yield from take_tunnel(kernel, settings, devices, family, part)
    into.replace(places | on_tunnels, part)


def take_rules(kernel: Netlink, settings: LinuxSettings, family: int, into: KernelSnapshot) -> None:
    """Read the rules. A crash during a change of priority leaves two; then the unwanted one is shown."""
    found = rules.dump(kernel, SOCKET_FAMILIES[family], settings.protocol)
    for one in sorted(found, key=lambda one: one.priority != settings.priority):
        into.shapes[ClaimKey(ClaimKind.RULE, family, one.table, 0)] = RoutingRule(one.priority)


def own_tunnel(devices: Devices, family: int) -> dict[ClaimKey, Shape]:
    """Return our tunnel device and the addresses on it: all of them are ours, as the device is."""
    shown, link = devices.shown(family), devices.tunnel(family)
    found: dict[ClaimKey, Shape] = {} if shown is None else {device(family): shown}
    for one in devices.networks if link is not None else ():
        if link is not None and one.device == link.number and len(one.address) == SIZES[family]:
            found[tunnel_address(text(one.address))] = TunnelAddress(one.length)
    return found


def take_tunnel(
    kernel: Netlink, settings: LinuxSettings, devices: Devices, family: int, into: KernelSnapshot
) -> Steps[None]:
    """Read the forwarding entries and neighbours of one tunnel device."""
    link = devices.tunnel(family)
    if link is None:
        return
    macs, hosts = yield from neighbours.forwards(kernel, link.number)
    yield from into.add((ClaimKind.FORWARDING, family), macs, [MAC_BITS] * len(macs), hosts, _forwardings)
    number, socket_family = link.number, SOCKET_FAMILIES[family]
    addresses, macs_of = yield from neighbours.neighbours(kernel, number, settings.protocol, socket_family)
    lengths = [8 * SIZES[family]] * len(addresses)
    yield from into.add((ClaimKind.NEIGHBOUR, family), addresses, lengths, macs_of, _neighbours)


def take_nexthops(kernel: Netlink, settings: LinuxSettings, devices: Devices, into: KernelSnapshot) -> Steps[None]:
    """Read our nexthops, and reserve every ID that another program uses."""
    tunnels, names = devices.tunnel_numbers(), devices.names
    vxlan, direct = NexthopEntry(Mode.VXLAN), NexthopEntry(Mode.DIRECT)
    found = yield from nexthops.dump_steps(kernel)
    for at, (number, gateway, through, protocol) in enumerate(found):
        if at % _AT_A_TIME == 0:
            yield
        if protocol != settings.protocol or not gateway:
            into.nexthop_ids.reserve(number)
            continue
        into.nexthop_devices.add(through)
        key = ClaimKey(ClaimKind.NEXTHOP, FAMILY_OF[len(gateway)], int.from_bytes(gateway, "big"), 8 * len(gateway))
        if not into.nexthop_ids.record(gateway, number):
            into.shapes[key] = LocalRoute(f"a duplicate nexthop, {number}")  # ours, and unlike any wanted shape
        elif through in tunnels:
            into.shapes[key] = vxlan
        elif devices.number_towards(gateway) in (through, None):
            forwards = devices.forwarding.is_on(key.family, names[through]) if through in names else True
            into.shapes[key] = direct if forwards else LocalRoute(f"{names[through]} which does not forward")
        else:  # directly to a device on whose network the peer is not any more: likewise
            into.shapes[key] = LocalRoute(names.get(through, f"device {through}"))


def take_routes(
    kernel: Netlink, settings: LinuxSettings, devices: Devices, family: int, into: KernelSnapshot
) -> Steps[None]:
    """Read our routes; the nexthops are known already."""
    table = yield from routes.dump_steps(kernel, mark(settings), SIZES[family])
    ids = into.nexthop_ids
    shapes: list[Shape | None] = list(map(ids.routes.get, table.nexthops))
    if any(table.sources):
        sources = {
            number: text(number.to_bytes(SIZES[family], "big")) if number else "" for number in set(table.sources)
        }
        pairs = list(zip(table.nexthops, table.sources, strict=True))
        by_pair = {pair: ids.route(pair[0], sources[pair[1]]) for pair in set(pairs)}
        shapes = [by_pair[pair] for pair in pairs]
    local = {through for number, through in zip(table.nexthops, table.devices, strict=True) if not number}
    into.local[family] = {devices.names[one] for one in local if one in devices.names}
    if None in shapes or any(table.metrics):
        names, twice = devices.names, _twice(table)
        shapes = [
            shape if shape and not table.metrics[at] else _unwanted_shape(table, at, names, twice)
            for at, shape in enumerate(shapes)
        ]
    yield from into.add((ClaimKind.ROUTE, family), table.destinations, table.lengths, cast("list[Shape]", shapes), iter)


def take_interfaces(
    kernel: Netlink, settings: LinuxSettings, devices: Devices, family: int, into: KernelSnapshot
) -> Steps[None]:
    """Read the setup of the interfaces to which our routes lead; the routes are known already."""
    names = sorted(into.local[family] - devices.tunnel_names())
    for start in range(0, len(names), _INTERFACES_AT_A_TIME):
        into.shapes |= read_interfaces(kernel, settings, devices, family, names[start : start + _INTERFACES_AT_A_TIME])
        yield


def _twice(table: routes.RouteColumns) -> Set[tuple[int, int]]:
    """Places with several routes of different metrics, as a crash between adding one and deleting the other leaves."""
    if not any(table.metrics):
        return frozenset()
    places = Counter(zip(table.destinations, table.lengths, strict=True))
    return {place for place, count in places.items() if count > 1}


def _unwanted_shape(
    table: routes.RouteColumns, at: int, names: Mapping[int, str], twice: Set[tuple[int, int]]
) -> Shape:
    """Shape of a route to a device, or by another nexthop object than its gateway's: ours, and unlike any wanted
    shape."""
    number, through = table.nexthops[at], table.devices[at]
    if number:
        return by_nexthop_id(number)
    metric = SEVERAL_METRICS if (table.destinations[at], table.lengths[at]) in twice else table.metrics[at]
    return LocalRoute(names.get(through, f"device {through}"), metric)


def by_nexthop_id(number: int) -> LocalRoute:
    """Shape of a route that uses a nexthop object that is not wanted."""
    return LocalRoute(f"nexthop {number}")


def _forwardings(hosts: Sequence[bytes]) -> Iterable[Shape]:
    return map(FdbEntry, map(text, hosts))


def _neighbours(macs: Sequence[bytes]) -> Iterable[Shape]:
    return map(NeighbourEntry, map(mac_text, macs))


def mark(settings: LinuxSettings) -> RouteMark:
    return RouteMark(settings.table, settings.protocol)  # protection: N14
