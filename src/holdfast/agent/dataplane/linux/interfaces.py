"""Interfaces of workloads: the settings and the gateway address that let a workload use this host as its gateway.

IPv4: the host forwards what arrives, and answers ARP for 169.254.1.1 without delay, as for all else that it routes
elsewhere; a route of our own makes it do so without a default route, too. IPv6: the host has fe80::1 on every
interface. Where no peer leads to the uplinks, these forward too. Settings stay when a workload goes; the address goes
with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.agent.claims import ClaimKey, InterfaceSetup, LocalRoute, Shape, interface, route
from holdfast.agent.dataplane.linux.devices import Devices
from holdfast.agent.dataplane.linux.forwarding import forwarding_knobs
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import addresses, ifaddr
from holdfast.netlink.ifaddr import InterfaceAddress
from holdfast.netlink.socket import Netlink

GATEWAY = {4: "169.254.1.1", 6: "fe80::1"}
"""Address of a workload's gateway, the same on all hosts."""
GATEWAY_6 = addresses.octets(GATEWAY[6])
_LOOPBACK = "lo"
_LENGTH = 64


def gateway_route(families: Iterable[int]) -> dict[ClaimKey, Shape]:
    """Route that lets the kernel answer ARP for the gateway where there is no default route."""
    return {route(f"{GATEWAY[4]}/32"): LocalRoute(_LOOPBACK)} if 4 in families else {}


def read_interfaces(
    kernel: Netlink, settings: LinuxSettings, devices: Devices, family: int, names: Iterable[str]
) -> dict[ClaimKey, Shape]:
    """Read which of these interfaces are set up; nothing is said about the others."""
    there = [name for name in names if name in devices.links and name != _LOOPBACK]
    devices.workloads.update(name for name in there if devices.unfit(name) is None)
    if family == 6 and there:
        with_gateway = _with_gateway(kernel, settings)
        there = [name for name in there if devices.links[name].number in with_gateway]
    if there and not all(devices.forwarding.is_on(family, one) for one in devices.uplinks()):
        return {}
    wanted = {name: setup_knobs(devices, family, name) for name in there}
    values = devices.sysctls.read(knob for knobs in wanted.values() for knob in knobs).items()
    return {interface(family, name): InterfaceSetup() for name, knobs in wanted.items() if knobs.items() <= values}


def setup_knobs(devices: Devices, family: int, name: str) -> dict[str, int]:
    """Knobs of a workload's interface, in the order in which they are to be set: the host takes no route from a
    workload, least of all while it forwards."""
    forward = forwarding_knobs(devices.sysctls, family, name)
    if family == 4:
        return forward | {f"ipv4/conf/{name}/proxy_arp": 1, f"ipv4/neigh/{name}/proxy_delay": 0}
    return {f"ipv6/conf/{name}/accept_ra": 0, f"ipv6/conf/{name}/accept_redirects": 0} | forward


def _with_gateway(kernel: Netlink, settings: LinuxSettings) -> set[int]:
    """Devices with the gateway's address. Before Linux 5.18 an address does not tell who added it."""
    found = ifaddr.dump(kernel)
    tells = any(one.protocol for one in found)
    return {one.link for one in found if one.address == GATEWAY_6 and (one.protocol == settings.protocol or not tells)}


def gateway_address(device: int, settings: LinuxSettings) -> InterfaceAddress:
    return InterfaceAddress(device, GATEWAY_6, _LENGTH, settings.protocol)
