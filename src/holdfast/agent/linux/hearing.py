"""What the picture learns from the ear: which of our objects went, what has to be looked at, when to read everything.

The picture is never carried on by guessing. An object that the kernel says is gone is taken out; whatever cannot be
followed in detail (a nexthop takes its routes with it, a device everything that leads through it) makes the whole
picture worthless, and the kernel is read again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from holdfast.agent.claims import Key, Local, Sort
from holdfast.agent.linux.ground import Ground
from holdfast.agent.linux.picture import MAC_BITS, SOCKET_FAMILIES
from holdfast.runtime.netlink import links, neighbours, networks, nexthops, routes, rules, wire
from holdfast.runtime.netlink.wire import Message

_FAMILIES = {number: family for family, number in SOCKET_FAMILIES.items()}
_DEVICE_AT = 4


class Hearing:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.keys: set[Key] = set()
        """To be looked at."""
        self.is_lost = False
        """The picture is worthless, and anything may have changed."""
        self.waiting: set[Key] = set()
        """Objects that an obstacle was in the way of: looked at again whenever devices or networks change."""

    def take_in(self, message: Message) -> None:
        """Draws the consequences of one message."""
        kind = message.type
        if kind in (links.NEW, links.DELETE):
            self._link(message)
        elif kind in (networks.NEW, networks.DELETE):
            self._ground.devices.look()
            self.keys |= self.waiting
        elif kind == neighbours.DELETE:
            self._neighbour(message)
        elif kind == routes.DELETE:
            self._route(message)
        elif kind in (rules.NEW, rules.DELETE):
            self._rule(message)
        elif kind in (routes.NEW, nexthops.NEW, nexthops.DELETE):
            self.is_lost = True

    def tell(self) -> set[Key] | None:
        """What has to be looked at since the last time; None is everything."""
        keys, self.keys = self.keys, set()
        is_lost, self.is_lost = self.is_lost, False
        return None if is_lost else keys

    def _link(self, message: Message) -> None:
        if message.body[0] != 0:
            return  # about its place in a bridge, not about the device
        link = links.read(message)
        is_gone = message.type == links.DELETE
        if not self._ground.devices.heard(link, gone=is_gone):
            return
        if link.number in self._ground.picture.carriers:
            self.is_lost = True
        local = self._local(link.name)
        if is_gone or not link.is_on:
            self._went(local)  # the kernel drops them without a word
        self.keys |= local
        self.keys |= self.waiting

    def _local(self, interface: str) -> set[Key]:
        way = Local(interface)
        return {key for key, shape in self._ground.picture.shapes.items() if shape == way}

    def _neighbour(self, message: Message) -> None:
        family = message.body[0]
        device = struct.unpack_from("=i", message.body, _DEVICE_AT)[0]
        tunnel = self._ground.devices.tunnel_numbers().get(device)
        if tunnel is None:
            return
        told = wire.attributes(message.body, neighbours.RECORD.itemsize - wire.HEADER_SIZE)
        if family == neighbours.BRIDGE and neighbours.MAC in told:
            self._went([Key(Sort.FORWARDING, tunnel, _number(told[neighbours.MAC]), MAC_BITS)])
        elif family in _FAMILIES and neighbours.ADDRESS in told:
            address = told[neighbours.ADDRESS]
            self._went([Key(Sort.NEIGHBOUR, _FAMILIES[family], _number(address), 8 * len(address))])

    def _route(self, message: Message) -> None:
        told = wire.attributes(message.body, routes.RECORD.itemsize - wire.HEADER_SIZE)
        table = struct.unpack("=I", told[routes.TABLE])[0] if routes.TABLE in told else message.body[4]
        family = _FAMILIES.get(message.body[0])
        if table != self._ground.settings.table or family is None:
            return
        number = _number(told[routes.DESTINATION]) if routes.DESTINATION in told else 0
        self._went([Key(Sort.ROUTE, family, number, message.body[1])])

    def _rule(self, message: Message) -> None:
        found = rules.read(message, self._ground.settings.protocol)
        if found is not None:
            self.is_lost = True

    def _went(self, keys: Iterable[Key]) -> None:
        """Objects that the kernel has let go; what we did not know to be there was our own doing."""
        for key in keys:
            if self._ground.picture.shapes.pop(key, None) is not None:
                self.keys.add(key)


def _number(octets: memoryview) -> int:
    return int.from_bytes(octets, "big")
