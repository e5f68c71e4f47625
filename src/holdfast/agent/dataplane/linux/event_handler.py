"""Updates the snapshot from kernel events: which of our objects are gone, which to compare, when to read everything.

The snapshot is never updated by guessing. An object that the kernel reports as deleted is taken out; whatever cannot be
followed in detail (a nexthop takes its routes with it, a device everything that leads through it) makes the whole
snapshot stale, and the kernel is read again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Set

from holdfast.agent.claims import ARRIVAL_METRIC, ClaimKey, ClaimKind, LocalRoute, device, interface
from holdfast.agent.dataplane.linux.context import LinuxContext
from holdfast.agent.dataplane.linux.devices import FAMILIES
from holdfast.agent.dataplane.linux.interfaces import GATEWAY_6
from holdfast.agent.dataplane.linux.snapshot import MAC_BITS, SOCKET_FAMILIES, Place
from holdfast.netlink import ifaddr, links, neighbours, nexthops, routes, rules, sysctls, wire
from holdfast.netlink.wire import Message

_FAMILIES = {number: family for family, number in SOCKET_FAMILIES.items()}
_DEVICE_AT = 4


class EventHandler:
    def __init__(self, context: LinuxContext) -> None:
        self._context = context
        self.keys: set[ClaimKey] = set()
        """Keys to compare."""
        self._everything_changed = False
        """Anything may have changed."""
        self.is_stale = True
        """The snapshot cannot be used until it is taken again."""
        self.stale: set[Place] = set()
        """Parts of it that cannot be used until they are taken again."""
        self._devices = dict(context.devices.links)
        """Devices as of the last comparison."""
        self._went_down: set[int] = set()
        """Devices that were down at some time since then, if only for a moment."""
        self._networks = context.devices.networks
        """Connected networks as of the last comparison."""
        self._devices_changed = False
        self.waiting: set[ClaimKey] = set()
        """Blocked objects: compared again when devices or networks change, whatever was created in their place
        meanwhile. One that is still blocked then is added again."""
        self.refused: set[ClaimKey] = set()
        """Objects that the kernel refused: likewise, because it may accept them now (N20). Changes of our own tunnel
        devices do not count: an attempt that fails half-way causes some itself."""

    def handle(self, message: Message) -> None:
        kind = message.type
        if kind in (links.NEW, links.DELETE):
            self._link(message)
        elif kind in (ifaddr.NEW, ifaddr.DELETE):
            self._network(message)
        elif kind == neighbours.DELETE:
            self._neighbour(message)
        elif kind == routes.DELETE:
            self._route(message)
        elif kind in (rules.NEW, rules.DELETE):
            self._rule(message)
        elif kind == sysctls.CHANGED:
            self._settings(message)
        elif kind in (routes.NEW, nexthops.NEW, nexthops.DELETE):
            self._everything_changed = True

    def invalidate(self) -> None:
        """Make the snapshot stale, so that it is taken again before it is used."""
        self.is_stale = True

    def refuse(self, keys: Set[ClaimKey]) -> None:
        """Note that the kernel refused changes of these objects: the snapshot is wrong about them, or knows nothing of
        a foreign object in their place. Nexthops are what routes are read by, so with one of them all is read again."""
        self.refused |= keys
        self.stale |= {(key.kind, key.family) for key in keys}
        self.is_stale |= any(key.kind is ClaimKind.NEXTHOP for key in keys)

    def snapshot_taken(self) -> None:
        """Use the snapshot again."""
        self.is_stale = False
        self.stale.clear()

    def events_lost(self) -> None:
        """Treat everything as changed, because some events did not arrive."""
        self._everything_changed = True

    def take_changed(self) -> set[ClaimKey] | None:
        """Return the keys to compare since the last call; None is everything. Raises OSError."""
        if self._devices_changed:
            self._compare_devices()
        keys, self.keys = self.keys, set()
        everything_changed, self._everything_changed = self._everything_changed, False
        self.is_stale |= everything_changed
        return None if everything_changed else keys

    def _link(self, message: Message) -> None:
        if message.body[0] != 0:
            return  # a bridge port event, not one of the device
        self._devices_changed = True
        link = links.read(message)
        if not link.is_up or message.type == links.DELETE:
            self._went_down.add(link.number)

    def _network(self, message: Message) -> None:
        self._devices_changed = True
        if message.type == ifaddr.DELETE and message.body[0] == SOCKET_FAMILIES[4]:
            # With the last IPv4 address of a device the kernel silently drops the routes to it.
            self._went_down.add(struct.unpack_from("=I", message.body, _DEVICE_AT)[0])
        elif message.type == ifaddr.DELETE and (gone := ifaddr.read(message)).address == GATEWAY_6:
            self._setup_changed(6, gone.link)

    def _settings(self, message: Message) -> None:
        family = _FAMILIES.get(message.body[0])
        if family is not None:
            self._setup_changed(family, sysctls.device_of(message))

    def _setup_changed(self, family: int, device: int) -> None:
        """Compare what depends on the settings or the address of that device; of all where it is not positive."""
        devices = self._context.devices
        devices.forwarding.forget()
        name = devices.names.get(device, "")
        names = self._context.snapshot.local[family] if device <= 0 else {name}
        keys = {key for one in names if (key := interface(family, one)) in self._context.snapshot.shapes}
        self.stale |= {(ClaimKind.INTERFACE, family)} if keys else set()
        self.keys |= keys
        self._everything_changed |= devices.forwarding.was_switched_off(family, name)

    def _compare_devices(self) -> None:
        """Compare devices by level, not by edge: events may be older than our last read; only a device that went down
        is taken from the event itself."""
        self._context.devices.read()
        self._devices_changed = False  # protection: N23, not before: an interrupted read would forget the event
        before, self._devices = self._devices, dict(self._context.devices.links)
        # A peer that is reached directly may be behind another device now.
        has_other_networks = self._context.devices.networks != self._networks
        self._everything_changed |= has_other_networks
        self._networks = self._context.devices.networks
        self._compare_tunnels()
        went_down, self._went_down = self._went_down, set()
        changed = {
            name: old
            for name in before.keys() | self._devices.keys()
            if (old := before.get(name)) != self._devices.get(name) or (old is not None and old.number in went_down)
        }
        for name, old in changed.items():
            self._changed(name, old)
        self.keys |= self.waiting
        self.waiting.clear()
        if has_other_networks or changed.keys() - self._context.devices.tunnel_names():
            self.keys |= self.refused
            self.refused.clear()

    def _compare_tunnels(self) -> None:
        """Compare our tunnel devices with what is known of them: others change them, and their MTU is the uplinks'."""
        for family in FAMILIES:
            key, shown = device(family), self._context.devices.shown(family)
            if shown != self._context.snapshot.shapes.get(key):
                self.keys.add(key)
                self._context.snapshot.pop(key)
                if shown is not None:
                    self._context.snapshot.put(key, shown)

    def _changed(self, name: str, old: links.Link | None) -> None:
        # The kernel drops the nexthops of a device that goes down, and silently the routes to it.
        if old is not None and old.number in self._context.snapshot.nexthop_devices:
            self._everything_changed = True
        like = self._context.snapshot.routes_like
        local = like(LocalRoute(name)) | like(LocalRoute(name, ARRIVAL_METRIC))
        local |= {key for family in FAMILIES if (key := interface(family, name)) in self._context.snapshot.shapes}
        self.stale |= {(key.kind, key.family) for key in local}
        self.keys |= local

    def _neighbour(self, message: Message) -> None:
        family = message.body[0]
        number = struct.unpack_from("=i", message.body, _DEVICE_AT)[0]
        tunnel = self._context.devices.tunnel_numbers().get(number)
        if tunnel is None:
            return
        found = wire.attributes(message.body, neighbours.RECORD.itemsize - wire.HEADER_SIZE)
        if family == neighbours.BRIDGE and neighbours.MAC in found:
            self._deleted([ClaimKey(ClaimKind.FORWARDING, tunnel, _number(found[neighbours.MAC]), MAC_BITS)])
        elif family in _FAMILIES and neighbours.ADDRESS in found:
            address = found[neighbours.ADDRESS]
            self._deleted([ClaimKey(ClaimKind.NEIGHBOUR, _FAMILIES[family], _number(address), 8 * len(address))])

    def _route(self, message: Message) -> None:
        found = wire.attributes(message.body, routes.RECORD.itemsize - wire.HEADER_SIZE)
        table = struct.unpack("=I", found[routes.TABLE])[0] if routes.TABLE in found else message.body[4]
        family = _FAMILIES.get(message.body[0])
        if table != self._context.settings.table or family is None:
            return
        number = _number(found[routes.DESTINATION]) if routes.DESTINATION in found else 0
        self._deleted([ClaimKey(ClaimKind.ROUTE, family, number, message.body[1])])

    def _rule(self, message: Message) -> None:
        found = rules.read(message, self._context.settings.protocol)
        if found is not None:
            self._everything_changed = True

    def _deleted(self, keys: Iterable[ClaimKey]) -> None:
        """Take out objects that the kernel has deleted; one that we did not know was deleted by us."""
        for key in keys:
            if self._context.snapshot.pop(key) is not None:
                self.keys.add(key)


def _number(octets: memoryview) -> int:
    return int.from_bytes(octets, "big")
