"""`holdfast balancer` on a real VPP, with clients and servers in namespaces (L3DSR)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from holdfast.netlink.netns import inside
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.daemon import PATIENCE
from holdfast.testing.real.flows import FlowCounts, run_clients
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.vpp_site import SERVERS, SOURCE, VIP, VppSite, server_address, vpp_site


@pytest.fixture
def site() -> Iterator[VppSite]:
    with or_skip(vpp_site()) as one:
        yield one


def test_clients_reach_every_server(site: VppSite) -> None:
    with site.balancer() as balancer:
        balancer.wait_weights()
        with run_clients(site.client, VIP, 80) as clients:
            wait_until(lambda: set(clients.counts().opened) == set(SERVERS), "every server has flows")
            assert clients.counts().failed == 0


def test_an_operator_sees_shares_of_buckets_and_packets(site: VppSite) -> None:
    with site.balancer() as balancer:
        balancer.wait_weights()
        with run_clients(site.client, VIP, 80) as clients:
            clients.after(50)
            wait_until(lambda: balancer.packets("new") > 0, "first packets of flows are counted", within=PATIENCE)
        told = balancer.cli("explain", "frontend", "www")
        assert told.count("of 4,096 buckets (33.3% of new flows)") == len(SERVERS)
        assert balancer.packets("no_server") == 0


def test_B12_a_killed_balancer_breaks_no_flow_and_writes_nothing_when_it_is_back(site: VppSite) -> None:
    with site.balancer() as balancer:
        balancer.wait_weights()
        with run_clients(site.client, VIP, 80) as clients:
            clients.after(50)
            balancer.kill()
            balancer.start()
            balancer.wait_weights()
            counts = clients.after(100)
        assert (counts.failed, counts.broken) == (0, {})
        assert balancer.writes() == 0


def test_B15_a_restarted_vpp_is_programmed_again_under_traffic(site: VppSite) -> None:
    with site.balancer() as balancer:
        balancer.wait_weights()
        with run_clients(site.client, VIP, 80) as clients:
            clients.after(50)
            site.restart_vpp()
            site.resolve_neighbours()
            balancer.wait_weights()
            before = clients.renewed()
            wait_until(lambda: _opened_since(before, clients.counts()) == set(SERVERS), "every server has new flows")
            assert clients.counts().failed == before.failed
        assert "VPP restarted, or did not answer for a time" in balancer.cli("history", "dataplane")


def test_a_vpp_that_was_stopped_for_a_while_is_not_written_to(site: VppSite) -> None:
    with site.balancer() as balancer:
        balancer.wait_weights()
        writes = balancer.writes()
        with run_clients(site.client, VIP, 80) as clients:
            clients.after(50)
            site.vpp.process.pause()
            wait_until(lambda: balancer.worker("vips").get("state") == "waiting: VPP", "VPP is away", within=PATIENCE)
            site.vpp.process.resume()
            balancer.wait_weights()
            before = clients.renewed()
            counts = clients.after(50)
        assert counts.failed == before.failed
        assert balancer.writes() == writes


def test_a_server_that_dies_gets_no_new_flow(site: VppSite) -> None:
    with site.balancer() as balancer:
        balancer.wait_weights()
        site.webs["s1"].kill()
        balancer.wait_weights(s1=0)
        with run_clients(site.client, VIP, 80) as clients:
            counts = clients.after(100)
        assert counts.failed == 0
        assert set(counts.opened) == {"s2", "s3"}


def test_gre_brings_the_packets_of_clients_to_servers_from_the_configured_source(site: VppSite) -> None:
    """The kernels of these servers need not know GRE: their packets are read from raw sockets."""
    with site.balancer("encapsulation: gre") as balancer, contextlib.ExitStack() as held:
        balancer.wait_weights()
        caught = {name: held.enter_context(_raw_gre(one)) for name, one in site.servers.items()}
        held.enter_context(run_clients(site.client, VIP, 80, flows=64))
        for name, packets in caught.items():
            outer = packets.recv(2048)
            inner = outer[24:]
            assert outer[12:20] == socket.inet_aton(SOURCE) + socket.inet_aton(server_address(name))
            assert outer[20:24] == bytes.fromhex("00000800")
            assert inner[12:20] == socket.inet_aton("10.8.0.2") + socket.inet_aton(VIP)


def _raw_gre(namespace: Namespace) -> socket.socket:
    packets = inside(namespace.system_name, lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_GRE))
    packets.settimeout(PATIENCE)
    return packets


def _opened_since(before: FlowCounts, now: FlowCounts) -> set[str]:
    return {server for server, opened in now.opened.items() if opened > before.opened.get(server, 0)}
