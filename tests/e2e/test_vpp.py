"""`holdfast balancer` on a real VPP, with clients and servers in namespaces (L3DSR)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.flows import run_clients
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.vpp_site import SERVERS, VIP, VppSite, vpp_site


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


def test_B15_a_restarted_vpp_is_programmed_again(site: VppSite) -> None:
    with site.balancer() as balancer:
        balancer.wait_weights()
        site.restart_vpp()
        balancer.wait_weights()
        with run_clients(site.client, VIP, 80) as clients:
            wait_until(lambda: clients.counts().opened != {}, "a flow gets an answer", within=60)


def test_a_server_that_dies_gets_no_new_flow(site: VppSite) -> None:
    with site.balancer() as balancer:
        balancer.wait_weights()
        site.webs["s1"].kill()
        balancer.wait_weights(s1=0)
        with run_clients(site.client, VIP, 80) as clients:
            counts = clients.after(100)
        assert counts.failed == 0
        assert set(counts.opened) == {"s2", "s3"}
