"""Neighbours and forwarding entries on our tunnel devices: which MAC a tunnel address has, behind which host it is."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agent.claims import ClaimKey, FdbEntry, NeighbourEntry, Shape
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused, octets
from holdfast.agent.dataplane.linux.devices import NoTunnel
from holdfast.netlink import addresses, neighbours
from holdfast.netlink.neighbours import Forward

Wanted = Sequence[tuple[ClaimKey, Shape]]


class FdbWriter:
    def make(self, ground: LinuxContext, family: int, wanted: Wanted) -> Refused:
        try:
            device = ground.devices.make_tunnel(family)
        except NoTunnel as missing:
            return {key: str(missing) for key, _ in wanted}
        entries = [_forward(key, shape) for key, shape in wanted]
        return ground.make([key for key, _ in wanted], neighbours.forward_additions(entries, device.number))

    def remove(self, ground: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        device = ground.devices.tunnel(family)
        there = [(key, ground.picture.shapes[key]) for key in keys if key in ground.picture.shapes]
        if device is None or not there:
            return {}
        entries = [_forward(key, shape) for key, shape in there]
        return ground.remove([key for key, _ in there], neighbours.forward_removals(entries, device.number))


class NeighbourWriter:
    def make(self, ground: LinuxContext, family: int, wanted: Wanted) -> Refused:
        try:
            device = ground.devices.make_tunnel(family)
        except NoTunnel as missing:
            return {key: str(missing) for key, _ in wanted}
        pairs = [neighbours.Neighbour(octets(key), _mac(shape)) for key, shape in wanted]
        batch = neighbours.neighbour_additions(pairs, device.number, ground.settings.protocol)
        return ground.make([key for key, _ in wanted], batch)

    def remove(self, ground: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        device = ground.devices.tunnel(family)
        there = [key for key in keys if key in ground.picture.shapes]
        if device is None or not there:
            return {}
        gone = [octets(key) for key in there]
        return ground.remove(there, neighbours.neighbour_removals(gone, device.number))


def _forward(key: ClaimKey, shape: Shape) -> Forward:
    assert isinstance(shape, FdbEntry)
    return Forward(key.number.to_bytes(6, "big"), addresses.octets(shape.to))


def _mac(shape: Shape) -> bytes:
    assert isinstance(shape, NeighbourEntry)
    return addresses.mac_octets(shape.mac)
