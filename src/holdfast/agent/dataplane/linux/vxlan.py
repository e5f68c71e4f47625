"""Writers of neighbours and forwarding entries on our tunnel devices."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agent.claims import ClaimKey, FdbEntry, NeighbourEntry, Shape
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused, octets
from holdfast.netlink import addresses, neighbours
from holdfast.netlink.neighbours import Forward

Wanted = Sequence[tuple[ClaimKey, Shape]]
NO_TUNNEL = "the tunnel device is not in the kernel"


class FdbWriter:
    def make(self, context: LinuxContext, family: int, wanted: Wanted) -> Refused:
        device = context.devices.tunnel(family)
        if device is None:
            return {key: NO_TUNNEL for key, _ in wanted}
        entries = [_forward(key, shape) for key, shape in wanted]
        return context.make([key for key, _ in wanted], neighbours.forward_additions(entries, device.number))

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        device = context.devices.tunnel(family)
        there = [(key, context.snapshot.shapes[key]) for key in keys if key in context.snapshot.shapes]
        if device is None or not there:
            return {}
        entries = [_forward(key, shape) for key, shape in there]
        return context.remove([key for key, _ in there], neighbours.forward_removals(entries, device.number))


class NeighbourWriter:
    def make(self, context: LinuxContext, family: int, wanted: Wanted) -> Refused:
        device = context.devices.tunnel(family)
        if device is None:
            return {key: NO_TUNNEL for key, _ in wanted}
        pairs = [neighbours.Neighbour(octets(key), _mac(shape)) for key, shape in wanted]
        batch = neighbours.neighbour_additions(pairs, device.number, context.settings.protocol)
        return context.make([key for key, _ in wanted], batch)

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        device = context.devices.tunnel(family)
        there = [key for key in keys if key in context.snapshot.shapes]
        if device is None or not there:
            return {}
        gone = [octets(key) for key in there]
        return context.remove(there, neighbours.neighbour_removals(gone, device.number))


def _forward(key: ClaimKey, shape: Shape) -> Forward:
    assert isinstance(shape, FdbEntry)
    return Forward(key.number.to_bytes(6, "big"), addresses.octets(shape.to))


def _mac(shape: Shape) -> bytes:
    assert isinstance(shape, NeighbourEntry)
    return addresses.mac_octets(shape.mac)
