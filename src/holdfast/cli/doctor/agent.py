"""Checks of an agent's machine: kernel, forwarding, reverse path filter, MTU of the tunnels, and whether another
program uses the agent's table or protocol number."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.agent.dataplane.linux.devices import FAMILIES, OVERHEAD, device_name
from holdfast.cli.doctor import Finding, Severity
from holdfast.config.sections.agent import AgentSettings
from holdfast.config.sections.linux import MAIN_TABLE, LinuxSettings
from holdfast.netlink import ifaddr, links, routes, sysctls
from holdfast.netlink.addresses import SIZES
from holdfast.netlink.links import Link
from holdfast.netlink.netns import inside
from holdfast.netlink.routes import RouteMark
from holdfast.netlink.socket import DumpInterrupted, Netlink
from holdfast.reconcile import Away

LEAST_KERNEL = (5, 3)
"""The first with nexthop objects."""
_SYSCTLS = Path("/proc/sys/net")
_FORWARDING = {4: ("forwarding",), 6: ("force_forwarding", "forwarding")}
"""Settings of a device, one of which has to be 1. That of IPv6 for all devices shows in that of each."""
_STRICT = 1
_ANY = 0


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything that the checks look at, as read from one network namespace."""

    kernel: str
    forwarding: Set[tuple[str, int]] = frozenset()
    """Devices that forward, with the family for which they do."""
    links: Mapping[str, Link] = field(default_factory=dict)
    uplinks: Sequence[str] = ()
    """Devices with an address, other than loopback and the tunnels."""
    rp_filter: Mapping[str, int] = field(default_factory=dict)
    """Value in force by device."""
    foreign_routes: int = 0
    """Routes in the agent's table that another program made."""
    stray_routes: int = 0
    """Routes in other tables with the agent's protocol number."""


Uplinks = Sequence[tuple[int, str]]
"""Devices by which packets to workloads of a family arrive without a tunnel, as the agent knows them."""


def examine(config: AgentSettings, uplinks: Uplinks = ()) -> Iterator[Finding]:
    """Check the network namespace that the agent programs."""
    netns, read = config.dataplane.netns, partial(facts, config.linux)
    try:
        found = read() if netns is None else inside(netns, read)
    except (OSError, Away, DumpInterrupted) as error:
        yield Finding(Severity.NOTE, "agent", f"its network is not checked: {error}")
        return
    yield from findings(found, config.linux, uplinks)


def findings(found: HostFacts, settings: LinuxSettings, uplinks: Uplinks = ()) -> Iterator[Finding]:
    yield _kernel(found.kernel)
    for family in FAMILIES:
        tunnel = found.links.get(device_name(settings, family))
        if tunnel is not None:
            yield _forwarding(found, tunnel.name, family, "the tunnel")
            yield from _tunnel(found, tunnel, family)
    for family, name in uplinks:
        yield _forwarding(found, name, family, name) if name else _unknown_uplink(family)
    yield from _conflicts(found, settings)


def _kernel(release: str) -> Finding:
    version = tuple(map(int, re.findall(r"\d+", release)[:2]))
    if version < LEAST_KERNEL:
        return Finding(
            Severity.WRONG, "kernel", f"Linux {release} has no nexthop objects: the agent needs 5.3 or newer"
        )
    return Finding(Severity.GOOD, "kernel", f"Linux {release}")


def _forwarding(found: HostFacts, device: str, family: int, through: str) -> Finding:
    name = sysctls.name(f"ipv{family}/conf/{device}/{_FORWARDING[family][0]}")
    if (device, family) in found.forwarding:
        return Finding(Severity.GOOD, "forwarding", f"{device} forwards IPv{family}")
    sentence = (
        f"{name} is not 1, so no workload of this host is reached by IPv{family} through {through}; the agent could "
        f"not set it (its log says why): sysctl -w {name}=1"
    )
    return Finding(Severity.WRONG, "forwarding", sentence)


def _unknown_uplink(family: int) -> Finding:
    sentence = (
        "no device but lo has an address that the inventory has for this host, so the agent does not know by which one "
        f"IPv{family} packets to its workloads arrive: correct the host's address, or switch forwarding on for the "
        "uplinks by hand"
    )
    return Finding(Severity.NOTE, "forwarding", sentence)


def _tunnel(found: HostFacts, tunnel: Link, family: int) -> Iterator[Finding]:
    name = tunnel.name
    if family == 4 and found.rp_filter.get(name) == _STRICT:  # Linux has none for IPv6
        knobs = f"net.ipv4.conf.all.rp_filter and net.ipv4.conf.{name}.rp_filter"
        sentence = (
            f"the reverse path filter of {name} is strict: packets from another host itself to a workload here are "
            f"dropped; set {knobs} to 2"
        )
        yield Finding(Severity.NOTE, "rp_filter", sentence)
    needed = tunnel.mtu + OVERHEAD[family]
    small = {link.mtu: up for up in found.uplinks if (link := found.links.get(up)) is not None and link.mtu < needed}
    if small:
        least = min(small)
        sentence = (
            f"{name} has an MTU of {tunnel.mtu}, so its packets need {needed} bytes, and {small[least]} carries "
            f"{least}: set agent.linux.underlay_mtu to {least} on all hosts"
        )
        yield Finding(Severity.WRONG, "mtu", sentence)
    elif found.uplinks:
        yield Finding(Severity.GOOD, "mtu", f"{name} has an MTU of {tunnel.mtu}, which every uplink carries")


def _conflicts(found: HostFacts, settings: LinuxSettings) -> Iterator[Finding]:
    if settings.table == MAIN_TABLE:
        sentence = f"protocol {settings.protocol} alone marks the agent's routes in the main table, as FRR needs it"
        yield Finding(Severity.GOOD, "table", sentence)
        return
    if found.foreign_routes:
        count = f"{found.foreign_routes:,}"
        sentence = f"table {settings.table} has routes of other programs ({count}): set another agent.linux.table"
        yield Finding(Severity.WRONG, "table", sentence)
    if found.stray_routes:
        sentence = (
            f"other tables have routes with protocol {settings.protocol} ({found.stray_routes:,}): if another program "
            "uses that number, set another agent.linux.protocol; if agent.linux.table was main before, delete them "
            f"with ip -4 route flush table main proto {settings.protocol}, and the same with -6"
        )
        yield Finding(Severity.NOTE, "protocol", sentence)
    if not found.foreign_routes and not found.stray_routes:
        sentence = f"no other program uses table {settings.table} or protocol {settings.protocol}"
        yield Finding(Severity.GOOD, "table", sentence)


def facts(settings: LinuxSettings) -> HostFacts:
    """Read them in the network namespace of the calling thread. Raises OSError and `DumpInterrupted`."""
    kernel = Netlink(socket.NETLINK_ROUTE)
    try:
        found, networks = links.dump(kernel), ifaddr.connected_networks(kernel)
        in_table = _count(kernel, RouteMark(settings.table, _ANY))
        ours = _count(kernel, RouteMark(settings.table, settings.protocol))
        everywhere = _count(kernel, RouteMark(_ANY, settings.protocol))
    finally:
        kernel.close()
    own = {"lo", *(device_name(settings, family) for family in FAMILIES)}
    names = {link.number: name for name, link in found.items()}
    with_address = {names[network.device] for network in networks if network.device in names}
    return HostFacts(
        os.uname().release,
        {(name, family) for family in FAMILIES for name in found if _forwards(name, family)},
        found,
        sorted(with_address - own),
        {name: max(_number("ipv4/conf/all/rp_filter"), _rp_filter(name)) for name in found},
        in_table - ours,
        everywhere - ours,
    )


def _count(kernel: Netlink, mark: RouteMark) -> int:
    return sum(len(routes.dump(kernel, mark, size).lengths) for size in SIZES.values())


def _forwards(device: str, family: int) -> bool:
    return any(_number(f"ipv{family}/conf/{device}/{knob}") == 1 for knob in _FORWARDING[family])


def _rp_filter(device: str) -> int:
    return _number(f"ipv4/conf/{device}/rp_filter")


def _number(path: str) -> int:
    try:
        return int((_SYSCTLS / path).read_text())
    except FileNotFoundError:  # a device that has just gone
        return 0
