"""The picture: what of ours the kernel holds, read whole, as claims.

Ours are the routes in our table with our protocol number, the nexthops and rules with that number, the neighbours with
that number on our tunnel devices, and every forwarding entry of those devices. Nothing else is in the picture, so
nothing else can be pruned (N14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import repeat
from typing import cast

from holdfast.agent.claims import Forwarding, Key, Local, Mode, Neighbour, Nexthop, Remote, Rule, Shape, Sort
from holdfast.agent.linux.devices import Devices
from holdfast.agent.linux.numbers import Numbers
from holdfast.agent.linux.settings import FAMILIES, Settings
from holdfast.runtime.netlink import neighbours, nexthops, routes, rules
from holdfast.runtime.netlink.addresses import SIZES, mac_text, text
from holdfast.runtime.netlink.routes import Mark
from holdfast.runtime.netlink.socket import Netlink

SOCKET_FAMILIES = {4: neighbours.IPV4, 6: neighbours.IPV6}
MAC_BITS = 48
FAMILY_OF = {4: 4, 16: 6}
"""By the octets of an address."""


class Picture:
    """What there is of ours, and the numbers of the nexthop objects."""

    def __init__(self, first: int, before: Numbers | None = None) -> None:
        self.shapes: dict[Key, Shape] = {}
        self.numbers = Numbers(first, before)
        self.carriers: set[int] = set()
        """The devices that our nexthops lead through."""

    def lose_routes_via(self, gateways: Collection[str]) -> None:
        """The kernel takes the routes of a nexthop away with it."""
        lost = [key for key, shape in self.shapes.items() if isinstance(shape, Remote) and shape.via in gateways]
        for key in lost:
            del self.shapes[key]


async def take(kernel: Netlink, settings: Settings, devices: Devices, before: Picture) -> Picture:
    """Reads everything, letting others run between two tables. Raises `Interrupted`, and OSError."""
    devices.look()
    picture = Picture(settings.first_nexthop, before.numbers)
    for family in FAMILIES:
        picture.shapes.update(rules_of(kernel, settings, family))
        picture.shapes.update(tunnel_of(kernel, settings, devices, family))
        await asyncio.sleep(0)
    picture.shapes.update(nexthops_of(kernel, settings, devices, picture))
    for family in FAMILIES:
        await asyncio.sleep(0)
        picture.shapes.update(routes_of(kernel, settings, devices, picture.numbers, family))
    return picture


def rules_of(kernel: Netlink, settings: Settings, family: int) -> Iterator[tuple[Key, Shape]]:
    for found in rules.dump(kernel, SOCKET_FAMILIES[family], settings.protocol):
        yield Key(Sort.RULE, family, found.table, 0), Rule(found.priority)


def tunnel_of(kernel: Netlink, settings: Settings, devices: Devices, family: int) -> dict[Key, Shape]:
    """The forwarding entries and neighbours of one tunnel device."""
    device = devices.tunnel(family)
    if device is None:
        return {}
    entries = neighbours.forwards(kernel, device.number)
    found = _claims(Sort.FORWARDING, family, entries.keys, repeat(MAC_BITS), map(Forwarding, map(text, entries.values)))
    pairs = neighbours.neighbours(kernel, device.number, settings.protocol, SOCKET_FAMILIES[family])
    macs = map(Neighbour, map(mac_text, pairs.values))
    return found | _claims(Sort.NEIGHBOUR, family, pairs.keys, repeat(8 * SIZES[family]), macs)


def nexthops_of(kernel: Netlink, settings: Settings, devices: Devices, into: Picture) -> Iterator[tuple[Key, Shape]]:
    """Our nexthops; on the way the picture learns all numbers that anybody uses."""
    tunnels = devices.tunnel_numbers()
    through, straight = Nexthop(Mode.VXLAN), Nexthop(Mode.DIRECT)
    for number, gateway, device, protocol in nexthops.dump(kernel):
        if protocol != settings.protocol or not gateway:
            into.numbers.take(number)
        elif into.numbers.learn(gateway, number):
            into.carriers.add(device)
            key = Key(Sort.NEXTHOP, FAMILY_OF[len(gateway)], int.from_bytes(gateway, "big"), 8 * len(gateway))
            yield key, through if device in tunnels else straight


def routes_of(kernel: Netlink, settings: Settings, devices: Devices, numbers: Numbers, family: int) -> dict[Key, Shape]:
    table = routes.dump(kernel, mark(settings), SIZES[family])
    shapes: list[Shape | None] = list(map(numbers.ways.get, table.nexthops))
    if None in shapes:
        names = devices.names()
        shapes = [shape or _strange_way(table, at, names) for at, shape in enumerate(shapes)]
    return _claims(Sort.ROUTE, family, table.destinations, table.lengths, cast("list[Shape]", shapes))


def _strange_way(table: routes.Table, at: int, names: Mapping[int, str]) -> Shape:
    """To a device; or by a nexthop object of somebody else: ours all the same, and certainly not as wanted."""
    number, device = table.nexthops[at], table.devices[at]
    return Local(f"nexthop {number}") if number else Local(names.get(device, f"device {device}"))


def _claims(
    sort: Sort, family: int, keys: Iterable[int], lengths: Iterable[int], shapes: Iterable[Shape]
) -> dict[Key, Shape]:
    """Made column by column: this is done for every object of every verification."""
    made = map(Key._make, zip(repeat(sort), repeat(family), keys, lengths, strict=False))
    return dict(zip(made, shapes, strict=True))


def mark(settings: Settings) -> Mark:
    return Mark(settings.table, settings.protocol)
