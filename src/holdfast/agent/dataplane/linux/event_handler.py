"""What the picture learns from the ear: which of our objects went, what has to be looked at, when to read everything.

The picture is never carried on by guessing. An object that the kernel says is gone is taken out; whatever cannot be
followed in detail (a nexthop takes its routes with it, a device everything that leads through it) makes the whole
picture worthless, and the kernel is read again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from holdfast.agent.claims import ClaimKey, ClaimKind, LocalRoute
from holdfast.agent.dataplane.linux.context import LinuxContext
from holdfast.agent.dataplane.linux.snapshot import MAC_BITS, SOCKET_FAMILIES
from holdfast.netlink import links, neighbours, networks, nexthops, routes, rules, wire
from holdfast.netlink.wire import Message

_FAMILIES = {number: family for family, number in SOCKET_FAMILIES.items()}
_DEVICE_AT = 4


class EventHandler:
    """Takes in messages, and tells what follows from them."""

    def __init__(self, ground: LinuxContext) -> None:
        self._ground = ground
        self.keys: set[ClaimKey] = set()
        """To be looked at."""
        self.is_lost = False
        """Anything may have changed."""
        self.must_read = False
        """The picture is worthless, until it is taken anew."""
        self._devices = dict(ground.devices.links)
        """As they were when their changes were last told."""
        self._fell: set[int] = set()
        """Devices that were down at some time since then, if only for a moment."""
        self._networks = ground.devices.networks
        """Those around us, likewise."""
        self._has_news_of_devices = False
        self.waiting: set[ClaimKey] = set()
        """Objects that an obstacle was in the way of: looked at again when devices or networks change, whatever was
        made in their place meanwhile. Whoever finds it still there says so anew."""

    def take_in(self, message: Message) -> None:
        """Draws the consequences of one message."""
        kind = message.type
        if kind in (links.NEW, links.DELETE):
            self._link(message)
        elif kind in (networks.NEW, networks.DELETE):
            self._network(message)
        elif kind == neighbours.DELETE:
            self._neighbour(message)
        elif kind == routes.DELETE:
            self._route(message)
        elif kind in (rules.NEW, rules.DELETE):
            self._rule(message)
        elif kind in (routes.NEW, nexthops.NEW, nexthops.DELETE):
            self.is_lost = True

    def tell(self) -> set[ClaimKey] | None:
        """What has to be looked at since the last time; None is everything. Raises OSError."""
        if self._has_news_of_devices:
            self._look_at_devices()
        keys, self.keys = self.keys, set()
        is_lost, self.is_lost = self.is_lost, False
        self.must_read |= is_lost
        return None if is_lost else keys

    def _link(self, message: Message) -> None:
        if message.body[0] != 0:
            return  # about its place in a bridge, not about the device
        self._has_news_of_devices = True
        link = links.read(message)
        if not link.is_up or message.type == links.DELETE:
            self._fell.add(link.number)

    def _network(self, message: Message) -> None:
        self._has_news_of_devices = True
        if message.type == networks.DELETE and message.body[0] == SOCKET_FAMILIES[4]:
            # With the last IPv4 address of a device the kernel drops, without a word, the routes to it.
            self._fell.add(struct.unpack_from("=I", message.body, _DEVICE_AT)[0])

    def _look_at_devices(self) -> None:
        """Level, not edge: messages may be older than what we have read since; only a fall is taken at its word."""
        self._has_news_of_devices = False
        self._ground.devices.look()
        before, self._devices = self._devices, dict(self._ground.devices.links)
        # A peer that is reached straight may be behind another device now.
        self.is_lost |= self._ground.devices.networks != self._networks
        self._networks = self._ground.devices.networks
        fell, self._fell = self._fell, set()
        for name in before.keys() | self._devices.keys():
            old = before.get(name)
            if old != self._devices.get(name) or (old is not None and old.number in fell):
                self._changed(name, old)
        self.keys |= self.waiting
        self.waiting.clear()

    def _changed(self, name: str, old: links.Link | None) -> None:
        # The kernel drops the nexthops of a device that goes down, and without a word the routes to it.
        if old is not None and old.number in self._ground.picture.carriers:
            self.is_lost = True
        local = self._local(name)
        self.must_read |= bool(local)
        self.keys |= local

    def _local(self, interface: str) -> set[ClaimKey]:
        way = LocalRoute(interface)
        return {key for key, shape in self._ground.picture.shapes.items() if shape == way}

    def _neighbour(self, message: Message) -> None:
        family = message.body[0]
        device = struct.unpack_from("=i", message.body, _DEVICE_AT)[0]
        tunnel = self._ground.devices.tunnel_numbers().get(device)
        if tunnel is None:
            return
        told = wire.attributes(message.body, neighbours.RECORD.itemsize - wire.HEADER_SIZE)
        if family == neighbours.BRIDGE and neighbours.MAC in told:
            self._went([ClaimKey(ClaimKind.FORWARDING, tunnel, _number(told[neighbours.MAC]), MAC_BITS)])
        elif family in _FAMILIES and neighbours.ADDRESS in told:
            address = told[neighbours.ADDRESS]
            self._went([ClaimKey(ClaimKind.NEIGHBOUR, _FAMILIES[family], _number(address), 8 * len(address))])

    def _route(self, message: Message) -> None:
        told = wire.attributes(message.body, routes.RECORD.itemsize - wire.HEADER_SIZE)
        table = struct.unpack("=I", told[routes.TABLE])[0] if routes.TABLE in told else message.body[4]
        family = _FAMILIES.get(message.body[0])
        if table != self._ground.settings.table or family is None:
            return
        number = _number(told[routes.DESTINATION]) if routes.DESTINATION in told else 0
        self._went([ClaimKey(ClaimKind.ROUTE, family, number, message.body[1])])

    def _rule(self, message: Message) -> None:
        found = rules.read(message, self._ground.settings.protocol)
        if found is not None:
            self.is_lost = True

    def _went(self, keys: Iterable[ClaimKey]) -> None:
        """Objects that the kernel has let go; what we did not know to be there was our own doing."""
        for key in keys:
            if self._ground.picture.shapes.pop(key, None) is not None:
                self.keys.add(key)


def _number(octets: memoryview) -> int:
    return int.from_bytes(octets, "big")
