"""Announced addresses with a whole balancer: they come when a VIP is served, and only down or gone takes them away. All
tests share one site, and leave it as they found it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from holdfast.balancer.announce.target import MARK
from holdfast.netlink import ifaddr
from holdfast.netlink.addresses import text
from holdfast.netlink.netns import inside
from holdfast.netlink.socket import Netlink
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.netns import network
from holdfast.testing.real.processes import Process, children, wait_until
from tests.e2e.balancer_harness import ALL, VIP, BalancedSite, stage, wait

SETTINGS: dict[str, Any] = {
    "warm_up": "200ms",
    "window": "2s",
    "frontend": "announce: {device: lo, withdraw-delay: 1s}",
}


_numbers = itertools.count(1)


class Watcher:
    """Writes down what happens to the addresses of the balancer's namespace."""

    def __init__(self, here: BalancedSite) -> None:
        namespace = here.balancer.namespace
        log = here.balancer.home / f"addresses-{next(_numbers)}"
        self._process = Process(namespace.command("ip", "monitor", "address"), log=log)
        self._process.start()
        self._run = namespace.run

    def hears(self) -> bool:
        """Add and delete an unused address; return True if the monitor has recorded it."""
        self._run("ip", "address", "add", "203.0.113.1/32", "dev", "lo")
        self._run("ip", "address", "del", "203.0.113.1/32", "dev", "lo")
        return "203.0.113.1" in self._process.output

    def changes(self) -> list[str]:
        """Return the recorded changes of VIPs."""
        return [line for line in self._process.output.splitlines() if any(vip in line for vip in VIP.values())]

    def stop(self) -> None:
        self._process.kill()


@pytest.fixture(scope="module")
def site() -> Iterator[BalancedSite]:
    with or_skip(network()) as net, stage(net, **SETTINGS) as made:
        yield made


@pytest.fixture
def here(site: BalancedSite) -> BalancedSite:
    wait(site.balancer.is_released, "the balancer has come to rest")
    site.wait_served()
    wait(lambda: announced(site) == set(VIP.values()), "all VIPs are announced")
    return site


@pytest.fixture
def watcher(here: BalancedSite) -> Iterator[Watcher]:
    made = Watcher(here)
    try:
        wait_until(made.hears, "the watcher hears")
        yield made
    finally:
        made.stop()


def announced(here: BalancedSite) -> set[str]:
    shown = here.balancer.namespace.run("ip", "-oneline", "address", "show", "dev", "lo")
    return {line.split()[3].partition("/")[0] for line in shown.splitlines()} & set(VIP.values())


def test_a_vip_that_is_served_is_announced_with_our_mark(here: BalancedSite) -> None:
    marks = {text(one.address): one.protocol for one in inside(here.balancer.namespace.system_name, addresses)}
    assert {vip: marks.get(vip) for vip in VIP.values()} == dict.fromkeys(VIP.values(), MARK)


def addresses() -> Sequence[ifaddr.InterfaceAddress]:
    with contextlib.closing(Netlink(socket.NETLINK_ROUTE)) as kernel:
        return ifaddr.dump(kernel)


def test_kill_stop_and_start_leave_every_address_as_it_is(here: BalancedSite, watcher: Watcher) -> None:
    here.balancer.kill()
    here.balancer.start()
    wait(here.balancer.is_released, "the balancer has come to rest")
    here.balancer.process.stop()
    here.balancer.start()
    wait(here.balancer.is_released, "the balancer has come to rest")
    assert watcher.changes() == []
    assert announced(here) == set(VIP.values())


def test_unknown_health_leaves_every_address_as_it_is(here: BalancedSite, watcher: Watcher) -> None:
    here.balancer.kill()
    for server in here.servers.values():
        server.process.pause()
    try:
        here.balancer.start()
        wait(lambda: here.balancer.worker_state("announce") == "held: no_health", "the announcer knows of nobody")
        assert watcher.changes() == []
    finally:
        for server in here.servers.values():
            server.process.resume()


def test_a_silent_prober_leaves_every_address_as_it_is(here: BalancedSite, watcher: Watcher) -> None:
    prober = here.balancer.worker_pid("prober")
    os.kill(prober, signal.SIGSTOP)
    try:
        for server in here.servers.values():
            server.kill()
        wait(lambda: here.balancer.status().get("prober_silent_s") is not None, "the silence is noticed")
        assert watcher.changes() == []
    finally:
        for server in here.servers.values():
            server.start()
        os.kill(prober, signal.SIGCONT)


def test_a_frontend_whose_servers_are_all_dead_is_withdrawn_and_comes_back(here: BalancedSite) -> None:
    for server in here.servers.values():
        server.kill()
    wait(lambda: announced(here) == set(), "no VIP is announced")
    wait(lambda: "is not announced on lo" in here.balancer.cli("explain", "frontend", "www-v4"), "explain tells")
    for server in here.servers.values():
        server.start()
    wait(lambda: announced(here) == set(VIP.values()), "all VIPs are announced")


def test_while_announcing_is_paused_nothing_is_withdrawn(here: BalancedSite) -> None:
    here.balancer.cli("pause", "worker", "announce", "--reason", "BGP maintenance")
    try:
        for server in here.servers.values():
            server.kill()
        wait(lambda: here.balancer.worker_state("announce") == "held: intent", "the announcer holds back")
        wait(lambda: "BGP maintenance" in here.balancer.cli("explain", "frontend", "www-v4"), "explain tells why")
        assert announced(here) == set(VIP.values())
    finally:
        here.balancer.cli("resume", "worker", "announce")
        for server in here.servers.values():
            server.start()


def test_a_frontend_that_is_gone_loses_its_address_before_its_vip(here: BalancedSite) -> None:
    order: list[tuple[bool, bool]] = []

    def is_over() -> bool:
        # The VIP is looked for first: an address that is there afterwards has outlived it.
        is_served = VIP[6] in here.balancer.table()
        order.append((VIP[6] in announced(here), is_served))
        return order[-1] == (False, False)

    here.balancer.configure(**SETTINGS, families=(4,))
    here.balancer.reload()
    try:
        wait(is_over, "the address and the VIP are gone")
        assert (True, False) not in order
        assert announced(here) == {VIP[4]}
    finally:
        here.balancer.configure(**SETTINGS)
        here.balancer.reload()
        here.balancer.wait_weights(ALL, 6)


def test_an_address_that_was_removed_comes_back(here: BalancedSite) -> None:
    here.balancer.namespace.run("ip", "address", "del", "192.0.2.80/32", "dev", "lo")
    wait(lambda: announced(here) == set(VIP.values()), "all VIPs are announced")


def test_the_workers_of_a_balancer_tell_why_an_address_is_there(here: BalancedSite) -> None:
    said = here.balancer.cli("history", "192.0.2.80/32 dev lo")
    assert "created 192.0.2.80/32 dev lo" in said


def test_a_killed_announcer_leaves_every_address_as_it_is(here: BalancedSite, watcher: Watcher) -> None:
    pid = here.balancer.worker_pid("announce")
    os.kill(pid, signal.SIGKILL)
    here.balancer.worker_pid("announce", after=pid)
    wait(lambda: here.balancer.worker_state("announce") == "ok", "it has looked")
    assert watcher.changes() == []
    assert children(here.balancer.process.pid)
