"""Writers of our tunnel devices, and of this host's own addresses on them."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from holdfast.agent.claims import ClaimKey, ClaimKind, Shape, TunnelAddress, VxlanDevice
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused, octets, sentence
from holdfast.agent.dataplane.linux.devices import NoTunnel
from holdfast.agent.dataplane.linux.vxlan import NO_TUNNEL, NeighbourWriter
from holdfast.netlink import ifaddr
from holdfast.netlink.ifaddr import InterfaceAddress
from holdfast.netlink.socket import NetlinkError, is_gone

Wanted = Sequence[tuple[ClaimKey, Shape]]


class DeviceWriter:
    def make(self, context: LinuxContext, family: int, wanted: Wanted) -> Refused:
        refused: Refused = {}
        for key, shape in wanted:
            assert isinstance(shape, VxlanDevice)
            try:
                kept = context.devices.make_tunnel(family, shape.mac)
            except NoTunnel as missing:
                refused[key] = str(missing)
                continue
            context.lost |= not kept
            if kept:
                self._restore_neighbours(context, family)
        return refused

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        try:
            context.devices.remove_tunnel(family)
        except NetlinkError as error:
            if not is_gone(error.errno or 0):
                return {key: sentence(error.errno or 0, error.strerror or "") for key in keys}
        return {}

    def _restore_neighbours(self, context: LinuxContext, family: int) -> None:
        """Create the neighbours again: Linux drops all of a device when its MAC changes."""
        there = [(key, one) for key, one in context.snapshot.shapes.items() if key[:2] == (ClaimKind.NEIGHBOUR, family)]
        if there:
            context.lost |= bool(NeighbourWriter().make(context, family, there))


class AddressWriter:
    def make(self, context: LinuxContext, family: int, wanted: Wanted) -> Refused:
        device = context.devices.tunnel(family)
        if device is None:
            return {key: NO_TUNNEL for key, _ in wanted}
        refused = {}
        for key, shape in wanted:
            there = context.snapshot.shapes.get(key)
            if isinstance(there, TunnelAddress) and there != shape:
                self._remove(context, device.number, key, there.length)
            try:
                ifaddr.add(context.kernel, self._address(context, device.number, key, key.length))
            except NetlinkError as error:
                if error.errno != errno.EEXIST or there != shape:
                    refused[key] = sentence(error.errno or 0, error.strerror or "")
        context.devices.read()
        return refused

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        device, refused = context.devices.tunnel(family), Refused()
        for key in keys:
            there = context.snapshot.shapes.get(key)
            if device is None or not isinstance(there, TunnelAddress):
                continue
            try:
                self._remove(context, device.number, key, there.length)
            except NetlinkError as error:
                refused[key] = sentence(error.errno or 0, error.strerror or "")
        context.devices.read()
        return refused

    def _remove(self, context: LinuxContext, device: int, key: ClaimKey, length: int) -> None:
        try:
            ifaddr.remove(context.kernel, self._address(context, device, key, length))
        except NetlinkError as error:
            if error.errno != errno.EADDRNOTAVAIL and not is_gone(error.errno or 0):
                raise

    def _address(self, context: LinuxContext, device: int, key: ClaimKey, length: int) -> InterfaceAddress:
        return InterfaceAddress(device, octets(key), length, context.settings.protocol)
