"""Writers of rules, nexthops and routes: the objects of both modes, VXLAN and direct.

Each class creates and deletes objects of one kind and one family. An object that is known to be there and ours is
replaced in place, without a moment in which it is missing. Any other is created only where nothing is: a foreign route
or nexthop at that place makes the kernel refuse ours, and stays (N14).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.agent.claims import (
    ARRIVAL_METRIC,
    ClaimKey,
    LocalRoute,
    Mode,
    NexthopEntry,
    RemoteRoute,
    RoutingRule,
    Shape,
    rule,
)
from holdfast.agent.dataplane.linux import snapshot
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused, octets, sentence
from holdfast.agent.dataplane.linux.devices import FAMILIES
from holdfast.agent.dataplane.linux.snapshot import SEVERAL_METRICS, SOCKET_FAMILIES
from holdfast.agent.dataplane.linux.vxlan import NO_TUNNEL
from holdfast.config.sections.linux import MAIN_TABLE, LinuxSettings
from holdfast.netlink import addresses, nexthops, routes, rules
from holdfast.netlink.routes import Route, RouteMark
from holdfast.netlink.socket import NetlinkError, is_gone

Wanted = Sequence[tuple[ClaimKey, Shape]]
_DUPLICATE_IN_USE = "routes use a duplicate nexthop for it: they move first, then the duplicate is deleted"
_NO_NEXTHOP = "its nexthop is not in the kernel"


class RuleWriter:
    def make(self, context: LinuxContext, family: int, wanted: Wanted) -> Refused:
        refused = {}
        for key, shape in wanted:
            assert isinstance(shape, RoutingRule)
            one = rules.Rule(SOCKET_FAMILIES[family], shape.priority, key.number)
            try:
                there = self._there(context, key)
                if one not in there:
                    rules.add(context.kernel, one, context.settings.protocol)
                # Delete second: for a moment there are two rules, but never none.
                self._remove(context, [other for other in there if other != one])
            except NetlinkError as error:
                refused[key] = sentence(error.errno or 0, error.strerror or "")
        return refused

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        """Delete the rule and, in a table that is no longer ours, our routes: nothing else would find them there."""
        refused = {}
        for key in keys:
            try:
                self._remove(context, self._there(context, key))
                if key.number != context.settings.table:
                    self._clear(context, key)
            except NetlinkError as error:
                refused[key] = sentence(error.errno or 0, error.strerror or "")
        return refused

    def _there(self, context: LinuxContext, key: ClaimKey) -> list[rules.Rule]:
        """All rules of ours that lead to that table: a crash between adding and deleting leaves two."""
        found = rules.dump(context.kernel, SOCKET_FAMILIES[key.family], context.settings.protocol)
        return [one for one in found if one.table == key.number]

    def _remove(self, context: LinuxContext, gone: Sequence[rules.Rule]) -> None:
        for one in gone:
            try:
                rules.remove(context.kernel, one, context.settings.protocol)
            except NetlinkError as error:
                if not is_gone(error.errno or 0):
                    raise

    def _clear(self, context: LinuxContext, key: ClaimKey) -> None:
        left = RouteMark(key.number, context.settings.protocol)
        size = addresses.SIZES[key.family]
        table = routes.dump(context.kernel, left, size)
        places = zip(table.destinations, table.lengths, strict=True)
        if table.destinations:
            gone = [
                Route(number.to_bytes(size, "big"), length, 0, metric=metric)
                for (number, length), metric in zip(places, table.metrics, strict=True)
            ]
            context.kernel.transact(routes.removals(gone, left))


class NexthopWriter:
    def make(self, context: LinuxContext, family: int, wanted: Wanted) -> Refused:
        refused: Refused = {}
        there: list[tuple[ClaimKey, nexthops.Nexthop]] = []
        new: list[tuple[ClaimKey, nexthops.Nexthop]] = []
        found = context.devices.tunnel(family)
        tunnel = NO_TUNNEL if found is None else found.number
        for key, shape in wanted:
            assert isinstance(shape, NexthopEntry)
            device = tunnel if shape.mode is Mode.VXLAN else direct_device(context, key)
            if isinstance(device, str):
                refused[key] = device
                continue
            if shape.mode is Mode.DIRECT:
                context.devices.forwarding.switch_on(family, context.devices.names[device])
            gateway = octets(key)
            refused |= self._delete_duplicates(context, key)
            is_there = context.snapshot.nexthop_ids.of(gateway) is not None
            number = context.snapshot.nexthop_ids.allocate(gateway)
            one = nexthops.Nexthop(number, gateway, device, context.settings.protocol)
            context.snapshot.nexthop_devices.add(device)
            (there if is_there else new).append((key, one))
        for group, replace in ((there, True), (new, False)):
            if group:
                batch = nexthops.additions([one for _, one in group], replace=replace)
                refused |= context.make([key for key, _ in group], batch)
        for key, one in new:
            if key in refused:
                context.snapshot.nexthop_ids.free(one.gateway)
        return refused

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        numbered = [
            (key, number) for key in keys if (number := context.snapshot.nexthop_ids.of(octets(key))) is not None
        ]
        if not numbered:
            return {}
        refused = context.remove([key for key, _ in numbered], nexthops.removals([number for _, number in numbered]))
        for key, _ in numbered:
            refused |= self._delete_duplicates(context, key)
        gone = [key for key, _ in numbered if key not in refused]
        for key in gone:
            context.snapshot.nexthop_ids.free(octets(key))
        context.snapshot.drop_routes_via({key.text for key in gone})
        return refused

    def _delete_duplicates(self, context: LinuxContext, key: ClaimKey) -> Refused:
        """Delete further objects for the same gateway; one that routes use stays until they use another, because the
        kernel would delete them with it."""
        ids = context.snapshot.nexthop_ids
        duplicates = ids.duplicates(octets(key))
        if not duplicates:
            return {}
        known = context.snapshot
        unused = [number for number in duplicates if not known.routes_like(snapshot.by_nexthop_id(number))]
        refused = context.remove([key] * len(unused), nexthops.removals(unused)) if unused else {}
        if refused:
            return refused
        ids.drop_duplicates(octets(key), unused)
        return {key: _DUPLICATE_IN_USE} if len(unused) < len(duplicates) else {}


class RouteWriter:
    def make(self, context: LinuxContext, family: int, wanted: Wanted) -> Refused:
        refused: Refused = {}
        groups: dict[tuple[bool, bool, bool], list[tuple[ClaimKey, Route]]] = {}
        for key, shape in wanted:
            found = self._route(context, key, shape)
            if isinstance(found, str):
                refused[key] = found
                continue
            there = context.snapshot.shapes.get(key)
            is_there = there is not None and _metric(there) in (found.metric, SEVERAL_METRICS)
            form = isinstance(shape, RemoteRoute), bool(found.source), is_there
            groups.setdefault(form, []).append((key, found))
        for (_, _, is_there), group in groups.items():
            batch = routes.additions([one for _, one in group], snapshot.mark(context.settings), replace=is_there)
            refused |= context.make([key for key, _ in group], batch)
        return refused | self._remove_other_metric(context, [key for key, _ in wanted if key not in refused], wanted)

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        shapes = context.snapshot.shapes
        gone = [(key, metric) for key in keys if key in shapes for metric in _metrics(shapes[key])]
        return self._delete(context, gone)

    def _remove_other_metric(self, context: LinuxContext, made: Sequence[ClaimKey], wanted: Wanted) -> Refused:
        """Delete the route that was there with another metric, after the new one was created: there is always one."""
        shapes, metrics = context.snapshot.shapes, {key: _metric(shape) for key, shape in wanted}
        there = [(key, metric) for key in made if key in shapes for metric in _metrics(shapes[key])]
        return self._delete(context, [(key, metric) for key, metric in there if metric != metrics[key]])

    def _delete(self, context: LinuxContext, gone: Sequence[tuple[ClaimKey, int]]) -> Refused:
        if not gone:
            return {}
        found = [Route(octets(key), key.length, 0, metric=metric) for key, metric in gone]
        return context.remove([key for key, _ in gone], routes.removals(found, snapshot.mark(context.settings)))

    def _route(self, context: LinuxContext, key: ClaimKey, shape: Shape) -> Route | str:
        if isinstance(shape, RemoteRoute):
            number = context.snapshot.nexthop_ids.of(addresses.octets(shape.via))
            source = addresses.octets(shape.source) if shape.source else b""
            return _NO_NEXTHOP if number is None else Route(octets(key), key.length, number, source=source)
        assert isinstance(shape, LocalRoute)
        reason = context.devices.blocked_by(shape.interface)
        if reason is not None:
            return reason
        return Route(octets(key), key.length, 0, context.devices.links[shape.interface].number, shape.metric)


def _metric(shape: Shape) -> int:
    return shape.metric if isinstance(shape, LocalRoute) else 0


def _metrics(shape: Shape) -> Sequence[int]:
    """Metrics of the routes at a place. 0 comes last: an IPv4 delete with it takes whatever has the lowest."""
    metric = _metric(shape)
    return (ARRIVAL_METRIC, 0) if metric == SEVERAL_METRICS else (metric,)


def direct_device(context: LinuxContext, key: ClaimKey) -> int | str:
    """Device on whose network the gateway is, or why there is none."""
    device = context.devices.towards(octets(key))
    if device is None:
        return f"{key.text} is on no connected network of this host"
    return context.devices.blocked_by(device.name) or device.number


def own_rules(settings: LinuxSettings, families: Iterable[int] = FAMILIES) -> dict[ClaimKey, Shape]:
    """Rules that no peer asks for: each sends a family to our table."""
    if settings.table == MAIN_TABLE:
        return {}  # the kernel's own rule
    return {rule(family, settings.table): RoutingRule(settings.priority) for family in families}
