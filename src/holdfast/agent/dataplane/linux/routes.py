"""Rules, nexthops and routes: the part of the dataplane that every mode has.

Each class makes and removes objects of one sort and one family. What is known to be there and ours is replaced in
place, without a moment in which it is not there. What is not known to be there is made only where nothing is: a route
or nexthop that somebody else put at that place refuses ours, and stays (N14).
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agent.claims import ClaimKey, LocalRoute, Mode, NexthopEntry, RemoteRoute, RoutingRule, Shape
from holdfast.agent.dataplane.linux import snapshot as picture
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused, octets, sentence
from holdfast.agent.dataplane.linux.devices import NoTunnel
from holdfast.agent.dataplane.linux.snapshot import SOCKET_FAMILIES
from holdfast.netlink import addresses, nexthops, routes, rules
from holdfast.netlink.routes import Route, RouteMark
from holdfast.netlink.socket import NetlinkError, is_gone

Wanted = Sequence[tuple[ClaimKey, Shape]]
_SPARE_IN_USE = "routes lead through a second nexthop for it: they move first, then it is deleted"
_NO_NEXTHOP = "its nexthop is not in the kernel"


class RuleWriter:
    def make(self, ground: LinuxContext, family: int, wanted: Wanted) -> Refused:
        refused = {}
        for key, shape in wanted:
            assert isinstance(shape, RoutingRule)
            one = rules.Rule(SOCKET_FAMILIES[family], shape.priority, key.number)
            try:
                there = self._there(ground, key)
                if one not in there:
                    rules.add(ground.kernel, one, ground.settings.protocol)
                # Only now: for a moment there are two, but never none.
                self._remove(ground, [other for other in there if other != one])
            except NetlinkError as error:
                refused[key] = sentence(error.errno or 0, error.strerror or "")
        return refused

    def remove(self, ground: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        """With a rule go our routes in a table that is no longer ours: nobody would find them there."""
        refused = {}
        for key in keys:
            try:
                self._remove(ground, self._there(ground, key))
                if key.number != ground.settings.table:
                    self._clear(ground, key)
            except NetlinkError as error:
                refused[key] = sentence(error.errno or 0, error.strerror or "")
        return refused

    def _there(self, ground: LinuxContext, key: ClaimKey) -> list[rules.Rule]:
        """All of ours that lead to that table: a crash between adding and removing leaves two."""
        found = rules.dump(ground.kernel, SOCKET_FAMILIES[key.family], ground.settings.protocol)
        return [one for one in found if one.table == key.number]

    def _remove(self, ground: LinuxContext, gone: Sequence[rules.Rule]) -> None:
        for one in gone:
            try:
                rules.remove(ground.kernel, one, ground.settings.protocol)
            except NetlinkError as error:
                if not is_gone(error.errno or 0):
                    raise

    def _clear(self, ground: LinuxContext, key: ClaimKey) -> None:
        left = RouteMark(key.number, ground.settings.protocol)
        size = addresses.SIZES[key.family]
        table = routes.dump(ground.kernel, left, size)
        places = zip(table.destinations, table.lengths, strict=True)
        if table.destinations:
            gone = [Route(number.to_bytes(size, "big"), length, 0) for number, length in places]
            ground.kernel.transact(routes.removals(gone, left))


class NexthopWriter:
    def make(self, ground: LinuxContext, family: int, wanted: Wanted) -> Refused:
        refused: Refused = {}
        there: list[tuple[ClaimKey, nexthops.Nexthop]] = []
        new: list[tuple[ClaimKey, nexthops.Nexthop]] = []
        tunnel = self._tunnel(ground, family) if NexthopEntry(Mode.VXLAN) in (shape for _, shape in wanted) else ""
        for key, shape in wanted:
            assert isinstance(shape, NexthopEntry)
            device = tunnel if shape.mode is Mode.VXLAN else straight_device(ground, key)
            if isinstance(device, str):
                refused[key] = device
                continue
            gateway = octets(key)
            refused |= self._rid_of_spare(ground, key)
            is_there = ground.picture.numbers.of(gateway) is not None
            number = ground.picture.numbers.give(gateway)
            found = nexthops.Nexthop(number, gateway, device, ground.settings.protocol)
            ground.picture.carriers.add(device)
            (there if is_there else new).append((key, found))
        for group, replace in ((there, True), (new, False)):
            if group:
                batch = nexthops.additions([one for _, one in group], replace=replace)
                refused |= ground.make([key for key, _ in group], batch)
        for key, one in new:
            if key in refused:
                ground.picture.numbers.free(one.gateway)
        return refused

    def remove(self, ground: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        numbered = [(key, number) for key in keys if (number := ground.picture.numbers.of(octets(key))) is not None]
        if not numbered:
            return {}
        refused = ground.remove([key for key, _ in numbered], nexthops.removals([number for _, number in numbered]))
        for key, _ in numbered:
            refused |= self._rid_of_spare(ground, key)
        gone = [key for key, _ in numbered if key not in refused]
        for key in gone:
            ground.picture.numbers.free(octets(key))
        ground.picture.lose_routes_via({key.text for key in gone})
        return refused

    def _rid_of_spare(self, ground: LinuxContext, key: ClaimKey) -> Refused:
        """Deletes further objects for the same gateway; one that routes lead through stays until they lead elsewhere,
        because the kernel would delete them with it."""
        numbers = ground.picture.numbers
        spare = numbers.spare(octets(key))
        if not spare:
            return {}
        shapes = ground.picture.shapes.values()
        unused = [number for number in spare if picture.by_number(number) not in shapes]
        refused = ground.remove([key] * len(unused), nexthops.removals(unused)) if unused else {}
        if refused:
            return refused
        numbers.drop_spare(octets(key), unused)
        return {key: _SPARE_IN_USE} if len(unused) < len(spare) else {}

    def _tunnel(self, ground: LinuxContext, family: int) -> int | str:
        try:
            return ground.devices.make_tunnel(family).number
        except NoTunnel as missing:
            return str(missing)


class RouteWriter:
    def make(self, ground: LinuxContext, family: int, wanted: Wanted) -> Refused:
        refused: Refused = {}
        groups: dict[tuple[bool, bool], list[tuple[ClaimKey, Route]]] = {}
        for key, shape in wanted:
            found = self._route(ground, key, shape)
            if isinstance(found, str):
                refused[key] = found
                continue
            groups.setdefault((isinstance(shape, RemoteRoute), key in ground.picture.shapes), []).append((key, found))
        for (_, is_there), group in groups.items():
            batch = routes.additions([one for _, one in group], picture.mark(ground.settings), replace=is_there)
            refused |= ground.make([key for key, _ in group], batch)
        return refused

    def remove(self, ground: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        there = [key for key in keys if key in ground.picture.shapes]
        if not there:
            return {}
        gone = [Route(octets(key), key.length, 0) for key in there]
        return ground.remove(there, routes.removals(gone, picture.mark(ground.settings)))

    def _route(self, ground: LinuxContext, key: ClaimKey, shape: Shape) -> Route | str:
        if isinstance(shape, RemoteRoute):
            number = ground.picture.numbers.of(addresses.octets(shape.via))
            return _NO_NEXTHOP if number is None else Route(octets(key), key.length, number)
        assert isinstance(shape, LocalRoute)
        obstacle = ground.devices.obstacle_at(shape.interface)
        if obstacle is not None:
            return obstacle
        return Route(octets(key), key.length, 0, ground.devices.links[shape.interface].number)


def straight_device(ground: LinuxContext, key: ClaimKey) -> int | str:
    """The device on whose network the gateway is, or why there is none."""
    device = ground.devices.towards(octets(key))
    if device is None:
        return f"{key.text} is on no network of this host"
    return ground.devices.obstacle_at(device.name) or device.number
