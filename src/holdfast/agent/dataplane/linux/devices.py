"""Devices of this network namespace: our tunnels, the workloads' interfaces, the connected networks.

A foreign device with the name of one of our tunnels is left alone, and the error says so (N14). One of ours with
another MAC, MTU or name is changed in place: the objects on it and the traffic through it stay. Only one with another
VNI or port is created again. A tunnel carries packets as large as the smallest uplink of its family allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from holdfast.agent.claims import VxlanDevice
from holdfast.agent.dataplane.linux.forwarding import Forwarding
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import ifaddr, links, routes
from holdfast.netlink.addresses import SIZES, mac_octets, mac_text, octets
from holdfast.netlink.links import Link, Vxlan
from holdfast.netlink.routes import RouteMark
from holdfast.netlink.socket import Netlink, NetlinkError
from holdfast.netlink.sysctls import Sysctls

FAMILIES = (4, 6)
OWNED = "holdfast: owned by its agent"
"""Alias of our devices."""
OVERHEAD = {4: 50, 6: 70}
"""Bytes that VXLAN adds to a packet, by family of the underlay."""

_MAIN, _ADVERTISED = 254, 9
"""Table and protocol number of routes from router advertisements."""
_ANY = 0
"""Protocol number that stands for all in a dump."""

UnderlayLookup = Callable[[int], str | None]
"""Returns the address of this host to which others send the packets of a tunnel, by family; None if it is unknown."""
DEFAULT_MTU = 1500


class NoTunnel(Exception):
    """Our tunnel device cannot exist now; the message is one sentence."""


class Devices:
    """State as of the last `read`."""

    def __init__(
        self, kernel: Netlink, settings: LinuxSettings, underlays: UnderlayLookup, *, is_routed: bool = False
    ) -> None:
        """`is_routed`: others distribute the routes to other hosts, so that no peer of ours leads to an uplink."""
        self.is_routed = is_routed
        self._kernel = kernel
        self._settings = settings
        self._underlays = underlays
        self.links: dict[str, Link] = {}
        self.workloads: set[str] = set()
        """Interfaces of workloads: the host takes no route from them."""
        self.names: dict[int, str] = {}
        """Names by number."""
        self.networks: frozenset[ifaddr.ConnectedNetwork] = frozenset()
        self._devices_towards: dict[bytes, int | None] = {}
        self._with_default: Set[str] | None = None
        """Devices with a default route, if that was asked since the last `read`."""
        self._owned_tunnels: Mapping[int, Sequence[Link]] = {}
        self._with_own: tuple[Set[bytes], Set[str]] | None = None
        """Own addresses, and the devices that have them, if that was asked since the last `read`."""
        self.sysctls = Sysctls()
        self.forwarding = Forwarding(self.sysctls, self._advertised)
        self.read()

    def read(self) -> None:
        """Read devices and networks again."""
        found_links = links.dump(self._kernel)
        found = frozenset(ifaddr.connected_networks(self._kernel))
        self.links = found_links
        self.names = {link.number: name for name, link in found_links.items()}
        self._owned_tunnels = {family: self._find_owned(family) for family in FAMILIES}
        self._with_own = None
        self.forwarding.forget()
        self._with_default = None
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
        """Our tunnel device for that underlay family, under whatever name, if it has our VNI and port."""
        return next((link for link in self._owned(family) if link.vxlan == self._vxlan()), None)

    def shown(self, family: int) -> VxlanDevice | None:
        """Shape of our tunnel device for that underlay family."""
        owned = self._owned(family)
        if not owned:
            return None
        link = self.tunnel(family) or owned[0]
        return VxlanDevice(mac_text(link.mac), self._difference(link, family, len(owned)))

    def uplinks(self) -> Set[str]:
        """Devices with this host's underlay addresses, if packets from other hosts arrive there without a tunnel and
        without a peer of ours."""
        return self._with_own_address() if self.is_routed else set()

    def unfit(self, interface: str) -> str | None:
        """Return why that cannot be the interface of a workload: as one, it would cut this host off."""
        link = self.links.get(interface)
        if interface == "lo":
            why = "is the loopback device"
        elif interface in self.tunnel_names() or (link is not None and link.alias == OWNED):
            why = "is a tunnel of this host"
        elif interface in self._with_own_address():
            why = "has an address of this host"
        elif interface in self._defaults():
            why = "has a default route of this host"
        else:
            return None
        return f"{interface} {why}: give the endpoint another interfaceName"

    def make_tunnel(self, family: int, mac: str) -> bool:
        """Create or change our tunnel device; returns False if one that was there is lost with everything on it.
        Raises `NoTunnel`."""
        if (reason := self.tunnel_blocked_by(family)) is not None:
            raise NoTunnel(reason)
        name, kept = device_name(self._settings, family), self.tunnel(family)
        gone = [link for link in self._removable(family) if link != kept]
        try:
            for link in gone:
                links.remove(self._kernel, link.number)
            if kept is None:
                size = self.mtu(family)
                links.add_vxlan(self._kernel, name, self._vxlan(), family, mac_octets(mac), mtu=size, alias=OWNED)
            else:
                self._change(kept, name, mac, family)
            self.forwarding.switch_on(family, name)
        except NetlinkError as refused:
            raise NoTunnel(f"cannot create or change device {name}: {refused.strerror}") from refused
        finally:
            self.read()
        return not gone

    def remove_tunnel(self, family: int) -> None:
        """Delete our tunnel device. Raises OSError."""
        for link in self._owned(family):
            links.remove(self._kernel, link.number)
        self.read()

    def mtu(self, family: int) -> int:
        """MTU of the tunnel device on an underlay of that family."""
        return (self._settings.underlay_mtu or self._underlay_mtu(family)) - OVERHEAD[family]

    def tunnel_blocked_by(self, family: int) -> str | None:
        """Return why our tunnel device for that underlay family cannot exist now."""
        name = device_name(self._settings, family)
        link = self.links.get(name)
        if link is not None and link.alias != OWNED and not self._is_unfinished(link):
            return f"device {name} is not Holdfast's: rename it, or set another agent.linux.device"
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

    def _with_own_address(self) -> Set[str]:
        own = {octets(one) for family in FAMILIES if (one := self._underlays(family))}
        if self._with_own is None or self._with_own[0] != own:
            found = (one.device for one in self.networks if one.address in own and self._is_uplink(one.device))
            self._with_own = own, {self.names[device] for device in found}
        return self._with_own[1]

    def _defaults(self) -> Set[str]:
        """Devices with a default route, but for one that a workload may have advertised to get out of the guard."""
        if self._with_default is None:
            six = self._default_devices(6, _ANY) - self._default_devices(6, _ADVERTISED)
            self._with_default = (self._default_devices(4, _ANY) + six).keys()
        return self._with_default

    def _advertised(self) -> Set[str]:
        """Devices by which the host accepts router advertisements."""
        return self._default_devices(6, _ADVERTISED).keys() - self.workloads

    def _default_devices(self, family: int, protocol: int) -> Counter[str]:
        found = routes.dump(self._kernel, RouteMark(_MAIN, protocol), SIZES[family])
        defaults = zip(found.lengths, found.devices, strict=True)
        return Counter(self.names[device] for length, device in defaults if not length and device in self.names)

    def _owned(self, family: int) -> Sequence[Link]:
        """Tunnel devices of ours, the one with the configured name first. A crash or another name may leave several."""
        return self._owned_tunnels[family]

    def _find_owned(self, family: int) -> Sequence[Link]:
        name = device_name(self._settings, family)
        found = [link for link in self.links.values() if link.alias == OWNED and link.name.endswith(str(family))]
        return sorted((link for link in found if link.vxlan), key=lambda link: (link.name != name, link.number))

    def _removable(self, family: int) -> list[Link]:
        named = self.links.get(device_name(self._settings, family))
        unfinished = [named] if named is not None and self._is_unfinished(named) else []
        return [*unfinished, *self._owned(family)]

    def _difference(self, link: Link, family: int, count: int) -> str:
        size = self.mtu(family)
        if count > 1:
            return f"one of {count} devices"
        if link.vxlan != self._vxlan():
            return "another VNI or port"
        if link.name != device_name(self._settings, family):
            return f"named {link.name}"
        if not link.is_on:
            return "down"
        if link.mtu != size:
            return f"an MTU of {link.mtu}, not {size}"
        return "" if self.forwarding.is_on(family, link.name) else "without forwarding"

    def _change(self, link: Link, name: str, mac: str, family: int) -> None:
        if link.name != name:
            links.rename(self._kernel, link.number, name)
        if link.mac != mac_octets(mac):
            links.set_mac(self._kernel, link.number, mac_octets(mac))
        links.switch_on(self._kernel, link.number, mtu=self.mtu(family))

    def _underlay_mtu(self, family: int) -> int:
        """MTU of the device with this host's underlay address; without one, the smallest of all uplinks."""
        uplinks = [one for one in self.networks if len(one.address) == SIZES[family] and self._is_uplink(one.device)]
        own = self._underlays(family)
        known = [one for one in uplinks if own is not None and one.address == octets(own)]
        return min((self.links[self.names[one.device]].mtu for one in known or uplinks), default=DEFAULT_MTU)

    def _is_uplink(self, number: int) -> bool:
        link = self.links.get(self.names.get(number, ""))
        return link is not None and link.alias != OWNED and link.name != "lo"

    def _is_unfinished(self, link: Link) -> bool:
        """Recognize a device left by a crash between its creation and its alias: exactly like ours, and down."""
        return not link.alias and not link.is_on and link.vxlan is not None and link.vxlan.vni == self._settings.vni

    def _vxlan(self) -> Vxlan:
        return Vxlan(self._settings.vni, self._settings.port)


def device_name(settings: LinuxSettings, family: int) -> str:
    return settings.device_name(family)
