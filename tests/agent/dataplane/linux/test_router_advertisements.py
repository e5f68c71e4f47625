"""Router advertisements and redirects of workloads, as real packets: the host takes no route from them."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping

import pytest

from holdfast.agent.claims import (
    GUARD,
    ClaimKey,
    GuardElement,
    GuardTable,
    InterfaceSetup,
    LocalRoute,
    Shape,
    guarded,
    interface,
    route,
    source,
)
from holdfast.agent.dataplane.linux import LinuxDataplane, forwarding
from holdfast.netlink.netns import inside
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import wait_until
from tests.agent.dataplane.linux.harness import HostHarness, creates

SETUP: Mapping[ClaimKey, Shape] = {route("fd00:28::1/128"): LocalRoute("tap1"), interface(6, "tap1"): InterfaceSetup()}
GUARDED: Mapping[ClaimKey, Shape] = {
    GUARD: GuardTable(7500, 4789),
    source("tap1", route("fd00:28::1/128")): GuardElement(),
    guarded("tap1"): GuardElement(),
}
_LIFETIME_S = 1_800
_ADVERTISEMENT, _REDIRECT, _ECHO = 134, 137, 128


def workload(site: HostHarness) -> Namespace:
    made = site.net.namespace("workload")
    site.ip("link add tap1 type veth peer name eth0 netns", made.system_name)
    made.run("ip", "link", "set", "eth0", "up")
    site.ip("link set tap1 up")
    wait_until(lambda: is_usable(made.run("ip", "address", "show", "eth0")), "the workload has its link-local address")
    wait_until(lambda: is_usable(site.ip("address show tap1")), "the host has its own")
    return made


def is_usable(addresses: str) -> bool:
    """Both ends have a carrier before the kernel gives them an address, which it then checks for duplicates."""
    return "inet6 fe80:" in addresses and "tentative" not in addresses


def send(one: Namespace, kind: int, hops: int = 255) -> None:
    """Send an ICMPv6 message of that type to all nodes; the kernel fills in the checksum."""

    def sent() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
            head = struct.pack(">BBHBBH", kind, 0, 0, 64, 0, _LIFETIME_S if kind == _ADVERTISEMENT else 0)
            raw.sendto(head + bytes(8), ("ff02::1", 0, 0, socket.if_nametoindex("eth0")))

    inside(one.system_name, sent)


def default_route(site: HostHarness) -> str:
    return site.ip("-6 route show default")


def counted(site: HostHarness) -> int:
    """Packets that the first rule of chain `workload` has dropped."""
    listed = site.host.run("nft", "list", "chain", "inet", "holdfast_guard", "workload")
    return int(listed.partition("counter packets ")[2].split()[0])


def test_a_workload_gives_the_host_no_default_route(site: HostHarness, dataplane: LinuxDataplane) -> None:
    one = workload(site)
    send(one, _ADVERTISEMENT)
    wait_until(lambda: "dev tap1 proto ra" in default_route(site), "an interface that is not set up accepts it")
    site.ip("-6 route flush default")
    assert not any(asyncio.run(dataplane.apply(creates(SETUP))))
    before = advertisements(site)
    send(one, _ADVERTISEMENT)
    wait_until(lambda: advertisements(site) > before, "the host has received the advertisement")
    assert default_route(site) == ""


def advertisements(site: HostHarness) -> int:
    found = site.host.run("cat", "/proc/net/snmp6").split()
    return int(found[found.index("Icmp6InRouterAdvertisements") + 1])


def test_the_guard_drops_advertisements_and_redirects_and_nothing_else_of_icmp(site: HostHarness) -> None:
    one = workload(site)
    with site.dataplane(guard=True) as dataplane:
        assert not any(asyncio.run(dataplane.apply(creates(GUARDED))))
    for number, kind in enumerate((_ADVERTISEMENT, _REDIRECT), 1):
        before = advertisements(site)
        send(one, kind)
        wait_until(lambda wanted=number: counted(site) == wanted, "the guard has dropped it")  # type: ignore[misc]
        assert advertisements(site) == before
    send(one, _ECHO)
    wait_until(lambda: echoes(site) > 0, "an echo request passes")
    assert counted(site) == 2
    assert default_route(site) == ""


def echoes(site: HostHarness) -> int:
    found = site.host.run("cat", "/proc/net/snmp6").split()
    return int(found[found.index("Icmp6InEchos") + 1])


def test_a_workload_whose_advertisement_came_first_is_guarded_all_the_same(site: HostHarness) -> None:
    one = workload(site)
    send(one, _ADVERTISEMENT)
    wait_until(lambda: "dev tap1 proto ra" in default_route(site), "the host has the route")
    with site.dataplane(underlays={4: "10.0.0.1"}.get, guard=True) as dataplane:
        assert dataplane.blocked_by(guarded("tap1"), GuardElement()) is None


def test_an_old_kernel_does_not_keep_the_default_route_of_a_workload(
    site: HostHarness, dataplane: LinuxDataplane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "has_force_forwarding", lambda _settings: False)
    one = workload(site)
    site.interface("tap0")  # the first to be set up: with it the host begins to forward
    send(one, _ADVERTISEMENT)
    wait_until(lambda: "dev tap1 proto ra" in default_route(site), "the host has the route")
    assert not any(asyncio.run(dataplane.apply(creates({**SETUP, interface(6, "tap0"): InterfaceSetup()}))))
    wait_until(lambda: default_route(site) == "", "Linux has deleted it", within=5)
