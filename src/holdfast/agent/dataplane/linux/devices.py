"""Devices of this network namespace: our tunnels, the workloads' interfaces, the connected networks.

A tunnel device is created when an object first needs it, under our name and with our alias. A foreign device of that
name is left alone, and the error says so (N14). One of ours with other parameters is created again, except for the MTU,
which changes in place: the objects on the device and the traffic through it stay.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import ifaddr, links
from holdfast.netlink.addresses import mac_octets
from holdfast.netlink.links import Link, Vxlan
from holdfast.netlink.socket import Netlink, NetlinkError

FAMILIES = (4, 6)
OWNED = "holdfast: owned by its agent"
"""Alias of our devices."""
OVERHEAD = {4: 50, 6: 70}
"""Bytes that VXLAN adds to a packet, by family of the underlay."""

MacLookup = Callable[[int], str | None]
"""Returns the MAC of our VXLAN device by family; None while that is not known."""


class NoTunnel(Exception):
    """Our tunnel device cannot exist now; the message is one sentence."""


class Devices:
    """State as of the last `read`."""

    def __init__(self, kernel: Netlink, settings: LinuxSettings, macs: MacLookup) -> None:
        self._kernel = kernel
        self._settings = settings
        self._macs = macs
        self.links: dict[str, Link] = {}
        self.names: dict[int, str] = {}
        """Names by number."""
        self.networks: frozenset[ifaddr.ConnectedNetwork] = frozenset()
        self._devices_towards: dict[bytes, int | None] = {}
        self.read()

    def read(self) -> None:
        """Read devices and networks again."""
        found_links = links.dump(self._kernel)
        found = frozenset(ifaddr.connected_networks(self._kernel))
        self.links = found_links
        self.names = {link.number: name for name, link in found_links.items()}
        if found != self.networks:
            self.networks = found
            self._devices_towards = {}

    def tunnel_names(self) -> Set[str]:
        """Names of our tunnel devices, whether they exist or not."""
        return {device_name(self._settings, family) for family in FAMILIES}

    def tunnel_numbers(self) -> dict[int, int]:
        """Families of our tunnel devices, by device number."""
        return {found.number: family for family in FAMILIES if (found := self.tunnel(family)) is not None}

    def tunnel(self, family: int) -> Link | None:
        """Our tunnel device for that underlay family, if it exists with the right parameters.

        Objects on one with another MAC or VNI count as missing: they are created again, and the device with them.
        """
        found = self.links.get(device_name(self._settings, family))
        return found if found is not None and self._is_as_wanted(found, family) else None

    def make_tunnel(self, family: int) -> Link:
        """Return our tunnel device, creating or changing it if necessary. Raises `NoTunnel`."""
        name = device_name(self._settings, family)
        link = self.links.get(name)
        if link is not None and self._is_as_wanted(link, family):
            return link if link.is_on and self.has_mtu(link, family) else self._resized(link, family)
        if (reason := self.tunnel_blocked_by(family)) is not None:
            raise NoTunnel(reason)
        if link is not None:
            links.remove(self._kernel, link.number)
        self._add(name, family)
        return self._reread(name)

    def has_mtu(self, tunnel: Link, family: int) -> bool:
        """Return whether its MTU is the configured one."""
        return tunnel.mtu == mtu(self._settings, family)

    def tunnel_blocked_by(self, family: int) -> str | None:
        """Return why our tunnel device for that underlay family cannot exist now."""
        name = device_name(self._settings, family)
        link = self.links.get(name)
        if link is not None and link.alias != OWNED and not self._is_unfinished(link):
            return f"device {name} is not Holdfast's: rename it, or set another agent.linux.device"
        if self._macs(family) is None and (link is None or not self._is_as_wanted(link, family)):
            return "the MAC of this host's tunnel device is not known before the first complete list"
        return None

    def blocked_by(self, interface: str) -> str | None:
        """Return why no route can lead to that interface now."""
        link = self.links.get(interface)
        if link is None:
            return f"interface {interface} does not exist"
        if not link.is_on:
            return f"interface {interface} is down"
        return None if link.is_up else f"interface {interface} has no carrier"

    def towards(self, address: bytes) -> Link | None:
        """Device on whose network that address is."""
        name = self.names.get(self.number_towards(address) or 0)
        return None if name is None else self.links[name]

    def number_towards(self, address: bytes) -> int | None:
        """Number of that device; cached, because every full read asks for that of every peer."""
        if address not in self._devices_towards:
            self._devices_towards[address] = ifaddr.device_towards(address, self.networks)
        return self._devices_towards[address]

    def _add(self, name: str, family: int) -> None:
        mac = self._macs(family)
        assert mac is not None, "tunnel_blocked_by has checked it"
        size = mtu(self._settings, family)
        try:
            links.add_vxlan(self._kernel, name, self._vxlan(), family, mac_octets(mac), mtu=size, alias=OWNED)
        except NetlinkError as refused:
            raise NoTunnel(f"cannot create device {name}: {refused.strerror}") from refused

    def _resized(self, link: Link, family: int) -> Link:
        size = mtu(self._settings, family)
        try:
            links.switch_on(self._kernel, link.number, mtu=size)
        except NetlinkError as refused:
            raise NoTunnel(f"cannot bring device {link.name} up with an MTU of {size}: {refused.strerror}") from refused
        return self._reread(link.name)

    def _reread(self, name: str) -> Link:
        self.read()
        if name not in self.links:
            raise NoTunnel(f"another program removed device {name} as soon as it was created")
        return self.links[name]

    def _is_as_wanted(self, link: Link, family: int) -> bool:
        mac = self._macs(family)
        has_our_mac = mac is None or link.mac == mac_octets(mac)
        return link.alias == OWNED and link.vxlan == self._vxlan() and has_our_mac

    def _is_unfinished(self, link: Link) -> bool:
        """Recognize a device left by a crash between its creation and its alias: exactly like ours, and down."""
        return not link.alias and not link.is_on and link.vxlan is not None and link.vxlan.vni == self._settings.vni

    def _vxlan(self) -> Vxlan:
        return Vxlan(self._settings.vni, self._settings.port)


def device_name(settings: LinuxSettings, family: int) -> str:
    return f"{settings.device}{family}"


def mtu(settings: LinuxSettings, family: int) -> int:
    """MTU of the tunnel device on an underlay of that family."""
    return settings.underlay_mtu - OVERHEAD[family]
