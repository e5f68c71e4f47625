"""Two balancers behind equal-cost routes: what becomes of established flows, and of "too big" messages, that reach the
other balancer. docs/several-balancers.md has the same in the operator's words.

    user ── router ─┬─ lb-1 ─┬─ web-1
                    └─ lb-2 ─┼─ web-2
                             └─ web-3

The router spreads flows by addresses and ports. Servers send replies through the balancer that the last packet of the
flow came by (a connection mark), because that balancer translated it.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any

import pytest

from holdfast.balancer.dataplane.api import Client
from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.vip import Vip
from holdfast.netlink.netns import inside
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.anycast import SERVERS, address
from holdfast.testing.real.balancers import BalancerProcess
from holdfast.testing.real.netns import Namespace, NamespaceNetwork, network
from holdfast.testing.real.nginx import LARGE
from tests.e2e.balancer_harness import VIP, BalancedSite, stage, wait

SETTINGS: dict[str, Any] = {"warm_up": "200ms", "frontend": "announce: {device: lo}"}
USERS = {4: "10.9.0.0/24", 6: "fd00:9::/64"}
USER = {4: "10.9.0.2", 6: "fd00:9::2"}
SMALL = 1300
"""MTU between the router and the user, smaller than all others."""
WEB = {family: Vip.of(VIP[family], "tcp", 80) for family in (4, 6)}
FLOWS = 40
_PORTS = itertools.count(20_000)
"""Each flow has a port of its own: balancers remember ended flows for minutes."""
RETURN = """\
table inet back {{
  chain in {{ type filter hook prerouting priority -150; {marks}; }}
  chain out {{ type route hook output priority -150; meta mark set ct mark; }}
}}
"""


class Flow:
    """One connection from the user to the VIP."""

    def __init__(self, user: Namespace, family: int = 4) -> None:
        here = (USER[family], next(_PORTS))
        self._socket = inside(user.system_name, lambda: socket.create_connection((VIP[family], 80), 120, here))
        host, port = self._socket.getsockname()[:2]
        self._vip = WEB[family]
        self._client = Client(family, int(ip_address(host)), port, socket.IPPROTO_TCP, 80)
        self.server = self.ask()

    def ask(self) -> str:
        """Return the name of the server that answers."""
        self._socket.sendall(b"GET / HTTP/1.1\r\nHost: www\r\n\r\n")
        answer = b""
        while not answer.partition(b"\r\n\r\n")[2].endswith(b"\n"):
            if not (more := self._socket.recv(4096)):
                raise ConnectionResetError("closed by the other end")
            answer += more
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # sends a delayed acknowledgement now
        return answer.rpartition(b"\r\n")[2].decode().strip()

    def download(self) -> int:
        """Return the length of a large answer."""
        self._socket.sendall(b"GET /large HTTP/1.1\r\nHost: www\r\nConnection: close\r\n\r\n")
        return len(b"".join(iter(lambda: self._socket.recv(65_536), b"")).partition(b"\r\n\r\n")[2])

    def is_reset(self) -> bool:
        with contextlib.suppress(ConnectionError):
            self.ask()
            return False
        return True

    def passes(self, balancer: BalancerProcess) -> bool:
        """Return True if connection tracking of that balancer has the flow."""

        def look() -> bool:
            with contextlib.closing(NftConnection("holdfast")) as kernel:
                return kernel.mark_of_flow(self._vip, self._client) is not None

        return inside(balancer.namespace.system_name, look)

    def close(self) -> None:
        self._socket.close()


class EqualCostSite:
    """The site of two balancers, with a router before them and a user behind it."""

    def __init__(self, net: NamespaceNetwork, made: BalancedSite) -> None:
        self.made = made
        self.router, self.user = made.client, net.namespace("user")
        self.to_user = net.cable(self.router, self.user, "10.9.0.1/24", "10.9.0.2/24")
        self.router.bring_up(self.to_user, "fd00:9::1/64")
        self.user.bring_up(self.to_user, f"{USER[6]}/64")
        self.router.forward()
        self.user.batch(["route add default via 10.9.0.1", "route add ::/0 via fd00:9::1"])
        # By ports too, and replies of one flow may come from the other balancer than its requests go to.
        by_ports = [f"net.ipv{family}.fib_multipath_hash_policy=1" for family in (4, 6)]
        self.router.run("sysctl", "-qw", *by_ports, "net.ipv4.conf.all.rp_filter=0")
        for number, balancer in enumerate(made.balancers, 1):
            balancer.namespace.batch(
                [f"route add {USERS[4]} via 10.1.{number}.2", f"route add {USERS[6]} via fd00:1:{number}::2"]
            )
        for place, server in enumerate(made.site.servers.values(), 1):
            _reply_by_last_way(net, server, place)
        self.announce(1, 2)

    def announce(self, *balancers: int) -> None:
        """Route to the VIP through these balancers: what BGP does with the addresses that they announce."""
        hops = " ".join(f"nexthop via 10.1.{number}.1" for number in balancers)
        hops_6 = " ".join(f"nexthop via fd00:1:{number}::1" for number in balancers)
        self.router.batch([f"route replace {VIP[4]}/32 {hops}", f"route replace {VIP[6]}/128 {hops_6}"])

    @contextlib.contextmanager
    def flows(self, family: int = 4) -> Iterator[Sequence[tuple[Flow, bool]]]:
        """Yield flows over both balancers; with each whether it passes the first."""
        opened = [Flow(self.user, family) for _ in range(FLOWS)]
        try:
            self.wait_acknowledged()
            first, second = ([one.passes(balancer) for one in opened] for balancer in self.made.balancers)
            assert [not one for one in first] == second, "each flow passes one balancer"
            assert any(first), "equal-cost routes spread flows"
            assert any(second), "equal-cost routes spread flows"
            yield list(zip(opened, first, strict=True))
        finally:
            for one in opened:
                one.close()

    def wait_acknowledged(self) -> None:
        """Wait until no packet of a flow is on its way: a late one would take the new route, or lead replies back."""
        servers = self.made.site.servers.values()
        wait(lambda: not any("unacked" in one.run("ss", "-Htni", "sport = :80") for one in servers), "all has arrived")

    @contextlib.contextmanager
    def withdrawn(self) -> Iterator[None]:
        """The first balancer gets no packets any more."""
        self.announce(2)
        try:
            yield
        finally:
            self.announce(1, 2)

    def track(self, **settings: int) -> None:
        """Set how the balancers track connections."""
        for balancer in self.made.balancers:
            balancer.namespace.run(
                "sysctl", "-qw", *(f"net.netfilter.{name}={value}" for name, value in settings.items())
            )


def _reply_by_last_way(net: NamespaceNetwork, server: Namespace, place: int) -> None:
    marks = []
    for number in (1, 2):
        gateway = f"10.2.{10 * number + place}.1"
        device = server.run("ip", "-oneline", "route", "get", gateway).split()[2]
        marks.append(f'iifname "{device}" ct mark set {number}')
        server.batch(
            [
                f"route add {USERS[4]} via {gateway} table 10{number}",
                f"route add {USERS[6]} via fd00:2:{10 * number + place}::1 table 10{number}",
                f"rule add fwmark {number} lookup 10{number}",
            ]
        )
        server.run("ip", "-6", "rule", "add", "fwmark", str(number), "lookup", f"10{number}")
    server.batch([f"route add {USERS[4]} via 10.2.{10 + place}.1", f"route add {USERS[6]} via fd00:2:{10 + place}::1"])
    server.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
    script = net.home / f"{server.name}.nft"
    script.write_text(RETURN.format(marks="; ".join(marks)))
    server.run("nft", "-f", str(script))


@pytest.fixture(scope="module")
def site() -> Iterator[EqualCostSite]:
    with or_skip(network()) as net, stage(net, balancers=2, **SETTINGS) as made:
        yield EqualCostSite(net, made)


@pytest.mark.parametrize("family", [4, 6])
def test_established_flows_continue_at_the_other_balancer_on_the_same_server(site: EqualCostSite, family: int) -> None:
    """It takes them up in the middle, and its equal table leads them to the server that has them."""
    with site.flows(family) as flows, site.withdrawn():
        assert [one.ask() for one, _ in flows] == [one.server for one, _ in flows]
        assert {one.server for one, _ in flows} == set(SERVERS)


@pytest.mark.parametrize("liberal", [0, 1])
def test_flows_that_come_back_continue_only_if_tracking_does_not_check_their_windows(
    site: EqualCostSite, liberal: int
) -> None:
    """The first balancer has tracked them before, and did not see what was acknowledged meanwhile."""
    site.track(nf_conntrack_tcp_be_liberal=liberal)
    try:
        with site.flows() as flows:
            with site.withdrawn():
                assert [one.ask() for one, _ in flows] == [one.server for one, _ in flows]
                site.wait_acknowledged()
            assert [one.is_reset() for one, _ in flows] == [was_first and not liberal for _, was_first in flows]
    finally:
        site.track(nf_conntrack_tcp_be_liberal=0)


@pytest.mark.parametrize("family", [4, 6])
def test_without_picking_up_established_flows_are_reset_at_the_other_balancer(site: EqualCostSite, family: int) -> None:
    site.track(nf_conntrack_tcp_loose=0)
    try:
        with site.flows(family) as flows, site.withdrawn():
            assert [one.is_reset() for one, _ in flows] == [was_first for _, was_first in flows]
    finally:
        site.track(nf_conntrack_tcp_loose=1)


@pytest.mark.parametrize("family", [4, 6])
def test_a_too_big_message_at_the_balancer_of_its_flow_reaches_the_server(site: EqualCostSite, family: int) -> None:
    with _small_link(site, family, errors_to=1):
        assert len(_download(site, family)) == LARGE
        assert any(_knows_small_path(site, family, name) for name in SERVERS)


@pytest.mark.parametrize("family", [4, 6])
def test_a_too_big_message_at_the_other_balancer_is_lost_and_servers_that_probe_do_not_need_it(
    site: EqualCostSite, family: int
) -> None:
    with _small_link(site, family, errors_to=2):
        before = _too_big_received(site.made.balancers[1], family)
        for server in site.made.site.servers.values():
            server.run("sysctl", "-qw", "net.ipv4.tcp_mtu_probing=1")
        try:
            assert len(_download(site, family)) == LARGE
        finally:
            for server in site.made.site.servers.values():
                server.run("sysctl", "-qw", "net.ipv4.tcp_mtu_probing=0")
        assert _too_big_received(site.made.balancers[1], family) > before
        assert not any(_knows_small_path(site, family, name) for name in SERVERS)


@pytest.mark.parametrize("family", [4, 6])
def test_a_too_big_message_about_a_flow_that_has_moved_reaches_the_server_from_there(
    site: EqualCostSite, family: int
) -> None:
    with _small_link(site, family, errors_to=2):
        flow = Flow(site.user, family)
        try:
            site.announce(2)
            assert flow.download() == LARGE
            assert _knows_small_path(site, family, flow.server)
        finally:
            flow.close()


@contextlib.contextmanager
def _small_link(site: EqualCostSite, family: int, errors_to: int) -> Iterator[None]:
    """Flows pass the first balancer; the router's errors about their packets go to that one."""
    gateway = f"10.1.{errors_to}.1" if family == 4 else f"fd00:1:{errors_to}::1"
    of, protocol = f"-{family}", "icmp" if family == 4 else "ipv6-icmp"
    site.announce(1)
    site.router.run("ip", "link", "set", site.to_user, "mtu", str(SMALL))
    site.router.run("ip", of, "route", "add", VIP[family], "via", gateway, "table", "99")
    site.router.run("ip", of, "rule", "add", "ipproto", protocol, "lookup", "99")
    try:
        yield
    finally:
        site.router.run("ip", of, "rule", "del", "ipproto", protocol, "lookup", "99")
        site.router.run("ip", of, "route", "flush", "table", "99")
        site.router.run("ip", "link", "set", site.to_user, "mtu", "1500")
        for server in site.made.site.servers.values():
            server.run("ip", of, "route", "flush", "cache")
        site.announce(1, 2)


def _download(site: EqualCostSite, family: int) -> str:
    host = VIP[4] if family == 4 else f"[{VIP[6]}]"
    return site.user.run("curl", "-gsS", "--max-time", "150", "-o", "-", f"http://{host}/large")


def _knows_small_path(site: EqualCostSite, family: int, server: str) -> bool:
    namespace = site.made.site.servers[server]
    route = namespace.run("ip", f"-{family}", "route", "get", USER[family], "from", address(server, family))
    return f"mtu {SMALL}" in route


def _too_big_received(balancer: BalancerProcess, family: int) -> int:
    """Count the messages about large packets that the balancer itself got, and translated for nobody."""
    if family == 6:
        counted = dict(line.split() for line in balancer.namespace.run("cat", "/proc/net/snmp6").splitlines())
        return int(counted["Icmp6InPktTooBigs"])
    lines = [line.split() for line in balancer.namespace.run("cat", "/proc/net/snmp").splitlines()]
    names, values = (line for line in lines if line[0] == "Icmp:")
    return int(values[names.index("InDestUnreachs")])


@pytest.fixture(scope="module")
def translating(site: EqualCostSite) -> EqualCostSite:
    """The site with balancers that are the clients of the servers; it stays so for the tests that follow."""
    for balancer in site.made.balancers:
        balancer.kill()
        balancer.configure(**SETTINGS, snat=True)
        balancer.start()
    for balancer in site.made.balancers:
        wait(partial(_translates, balancer), "it translates")
        balancer.wait_weights(dict.fromkeys(SERVERS, 100))
    return site


def test_with_snat_established_flows_are_reset_at_the_other_balancer(translating: EqualCostSite) -> None:
    """The server knows the flow from the first balancer's address only."""
    with translating.flows() as flows, translating.withdrawn():
        assert [one.is_reset() for one, _ in flows] == [was_first for _, was_first in flows]


def test_with_snat_a_server_is_served_at_its_own_vip_also_by_itself(translating: EqualCostSite) -> None:
    server = translating.made.site.servers["web-1"]
    server.batch([f"route add {VIP[4]}/32 via 10.2.11.1"])
    asked = [f"http://{VIP[4]}/?{number}" for number in range(30)]
    # A new connection each: kept alive, all requests would reach one server.
    answers = server.run("curl", "-sS", "--max-time", "60", "-H", "Connection: close", *asked).split()
    assert len(answers) == 30
    assert set(answers) == set(SERVERS)


def _translates(balancer: BalancerProcess) -> bool:
    rules = balancer.namespace.run("nft", "list", "chain", "inet", "holdfast", "postrouting")
    return "masquerade" in rules and "fib saddr" not in rules
