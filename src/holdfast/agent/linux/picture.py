"""The picture: what of ours the kernel holds, read whole, as claims.

Ours are the routes in our table with our protocol number, the nexthops and rules with that number, the neighbours with
that number on our tunnel devices, and every forwarding entry of those devices. Nothing else is in the picture, so
nothing else can be pruned (N14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator

from holdfast.agent.claims import Forwarding, Key, Local, Mode, Neighbour, Nexthop, Remote, Rule, Shape, Sort
from holdfast.agent.linux.devices import Devices
from holdfast.agent.linux.numbers import Numbers
from holdfast.agent.linux.settings import FAMILIES, Settings
from holdfast.runtime.netlink import neighbours, nexthops, routes, rules
from holdfast.runtime.netlink.addresses import SIZES, text
from holdfast.runtime.netlink.routes import Mark
from holdfast.runtime.netlink.socket import Netlink

SOCKET_FAMILIES = {4: neighbours.IPV4, 6: neighbours.IPV6}
MAC_BITS = 48
FAMILY_OF = {4: 4, 16: 6}
"""By the octets of an address."""


class Picture:
    """What there is of ours, and the numbers of the nexthop objects."""

    def __init__(self, first: int) -> None:
        self.shapes: dict[Key, Shape] = {}
        self.numbers = Numbers(first)
        self.carriers: set[int] = set()
        """The devices that our nexthops lead through."""

    def lose_routes_via(self, gateways: Collection[str]) -> None:
        """The kernel takes the routes of a nexthop away with it."""
        lost = [key for key, shape in self.shapes.items() if isinstance(shape, Remote) and shape.via in gateways]
        for key in lost:
            del self.shapes[key]


async def take(kernel: Netlink, settings: Settings, devices: Devices) -> Picture:
    """Reads everything, letting others run between two tables. Raises `Interrupted`, and OSError."""
    devices.look()
    picture = Picture(settings.first_nexthop)
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


def tunnel_of(kernel: Netlink, settings: Settings, devices: Devices, family: int) -> Iterator[tuple[Key, Shape]]:
    """The forwarding entries and neighbours of one tunnel device."""
    device = devices.tunnel(family)
    if device is None:
        return
    for mac, host in neighbours.forwards(kernel, device.number):
        yield Key(Sort.FORWARDING, family, _number(mac), MAC_BITS), Forwarding(text(host))
    bits = 8 * SIZES[family]
    for address, mac in neighbours.neighbours(kernel, device.number, settings.protocol, SOCKET_FAMILIES[family]):
        yield Key(Sort.NEIGHBOUR, family, _number(address), bits), Neighbour(mac.hex(":"))


def nexthops_of(kernel: Netlink, settings: Settings, devices: Devices, into: Picture) -> Iterator[tuple[Key, Shape]]:
    """Our nexthops; on the way the picture learns all numbers that anybody uses."""
    tunnels = devices.tunnel_numbers()
    through, straight = Nexthop(Mode.VXLAN), Nexthop(Mode.DIRECT)
    for number, gateway, device, protocol in nexthops.dump(kernel):
        if protocol != settings.protocol or not gateway:
            into.numbers.take(number)
        elif into.numbers.learn(gateway, number):
            into.carriers.add(device)
            key = Key(Sort.NEXTHOP, FAMILY_OF[len(gateway)], _number(gateway), 8 * len(gateway))
            yield key, through if device in tunnels else straight


def routes_of(
    kernel: Netlink, settings: Settings, devices: Devices, numbers: Numbers, family: int
) -> Iterator[tuple[Key, Shape]]:
    names = devices.names()
    ways: dict[tuple[int, int], Shape] = {}
    for destination, length, nexthop, device in routes.dump(kernel, mark(settings), SIZES[family]):
        way = ways.get((nexthop, device))
        if way is None:
            way = ways[nexthop, device] = _way(nexthop, device, names, numbers)
        yield Key(Sort.ROUTE, family, _number(destination), length), way


def mark(settings: Settings) -> Mark:
    return Mark(settings.table, settings.protocol)


def _way(nexthop: int, device: int, names: dict[int, str], numbers: Numbers) -> Shape:
    gateway = numbers.gateway(nexthop)
    if gateway is not None:
        return Remote(text(gateway))
    # By the nexthop object of somebody else, or to a device that is just going: ours all the same, and not as wanted.
    return Local(names.get(device, f"device {device}")) if not nexthop else Local(f"nexthop {nexthop}")


def _number(octets: bytes) -> int:
    return int.from_bytes(octets, "big")
