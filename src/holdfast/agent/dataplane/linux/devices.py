"""The devices of this network namespace: our tunnels, the workloads' interfaces, the networks of the underlay.

A tunnel device is made when something first needs it, under our name and with our alias. One of that name that is not
ours is left alone, and the sentence says so (N14); one of ours that is not as it has to be is made anew, but for its
MTU, which changes in place: what is on the device stays, and so does what passes through it.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.agent.dataplane.linux.naming import OWNED, device_name, mtu
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import links, networks
from holdfast.netlink.addresses import mac_octets
from holdfast.netlink.links import Link, Vxlan
from holdfast.netlink.socket import Netlink, NetlinkError

Macs = Callable[[int], str | None]
"""The MAC of our end of the tunnel, by family; None while that is not known."""


class NoTunnel(Exception):
    """Our tunnel device cannot be there now; the message is one sentence."""


class Devices:
    """As of the last look."""

    def __init__(self, kernel: Netlink, settings: LinuxSettings, macs: Macs) -> None:
        self._kernel = kernel
        self._settings = settings
        self._macs = macs
        self.links: dict[str, Link] = {}
        self.networks: frozenset[networks.ConnectedNetwork] = frozenset()
        self._devices_towards: dict[bytes, int | None] = {}
        self.look()

    def look(self) -> None:
        """Reads devices and networks again."""
        self.links = links.dump(self._kernel)
        found = frozenset(networks.dump(self._kernel))
        if found != self.networks:
            self.networks = found
            self._devices_towards = {}

    def names(self) -> dict[int, str]:
        """Names by number."""
        return {link.number: name for name, link in self.links.items()}

    def tunnel_numbers(self) -> dict[int, int]:
        """The families of our tunnel devices, by the device's number."""
        return {found.number: family for family in (4, 6) if (found := self.tunnel(family)) is not None}

    def tunnel(self, family: int) -> Link | None:
        """Our tunnel device for that family of the underlay, if it is there and as it has to be.

        What is on one with another MAC or network counts as not there: it is made again, and the device with it.
        """
        found = self.links.get(device_name(self._settings, family))
        return found if found is not None and self._is_as_wanted(found, family) else None

    def make_tunnel(self, family: int) -> Link:
        """Our tunnel device as it has to be. Raises `NoTunnel`."""
        name = device_name(self._settings, family)
        there = self.links.get(name)
        if there is not None and self._is_as_wanted(there, family):
            return there if there.is_on and self.is_of_size(there, family) else self._fitted(there, family)
        if there is not None:
            if there.alias != OWNED and not self._is_unfinished(there):
                raise NoTunnel(f"device {name} is not Holdfast's: rename it, or choose another name for ours")
            links.remove(self._kernel, there.number)
        self._add(name, family)
        return self._again(name)

    def is_of_size(self, tunnel: Link, family: int) -> bool:
        """Whether its MTU is the one that is configured."""
        return tunnel.mtu == mtu(self._settings, family)

    def obstacle_at(self, interface: str) -> str | None:
        """Why no route can lead to that interface now."""
        link = self.links.get(interface)
        if link is None:
            return f"interface {interface} does not exist"
        if not link.is_on:
            return f"interface {interface} is down"
        return None if link.is_up else f"interface {interface} has no carrier"

    def towards(self, address: bytes) -> Link | None:
        """The device on whose network that address is."""
        number = self.number_towards(address)
        return next((link for link in self.links.values() if link.number == number), None)

    def number_towards(self, address: bytes) -> int | None:
        """The number of that device; remembered, because every look at the kernel asks for that of every peer."""
        if address not in self._devices_towards:
            self._devices_towards[address] = networks.device_towards(address, self.networks)
        return self._devices_towards[address]

    def _add(self, name: str, family: int) -> None:
        mac = self._macs(family)
        if mac is None:
            raise NoTunnel("no source has said yet under which MAC the others know this host")
        size = mtu(self._settings, family)
        try:
            links.add_vxlan(self._kernel, name, self._vxlan(), family, mac_octets(mac), mtu=size, alias=OWNED)
        except NetlinkError as refused:
            raise NoTunnel(f"device {name} cannot be made: {refused.strerror}") from refused

    def _fitted(self, link: Link, family: int) -> Link:
        size = mtu(self._settings, family)
        try:
            links.switch_on(self._kernel, link.number, mtu=size)
        except NetlinkError as refused:
            raise NoTunnel(f"device {link.name} cannot be up with an MTU of {size}: {refused.strerror}") from refused
        return self._again(link.name)

    def _again(self, name: str) -> Link:
        self.look()
        if name not in self.links:
            raise NoTunnel(f"device {name} was removed by somebody else as soon as it was made")
        return self.links[name]

    def _is_as_wanted(self, link: Link, family: int) -> bool:
        mac = self._macs(family)
        is_known_as = mac is None or link.mac == mac_octets(mac)
        return link.alias == OWNED and link.vxlan == self._vxlan() and is_known_as

    def _is_unfinished(self, link: Link) -> bool:
        """A crash between making a device and naming its owner leaves one that is exactly like ours, and down."""
        return not link.alias and not link.is_on and link.vxlan is not None and link.vxlan.vni == self._settings.vni

    def _vxlan(self) -> Vxlan:
        return Vxlan(self._settings.vni, self._settings.port)
