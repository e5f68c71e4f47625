"""Two balancers for one site: whichever a client comes by, its flows go to the same server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.anycast import SERVERS
from holdfast.testing.real.flows import run_clients
from holdfast.testing.real.netns import network
from tests.e2e.balancer_harness import VIP, BalancedSite, stage, wait


@pytest.fixture(scope="module")
def site() -> Iterator[BalancedSite]:
    with or_skip(network()) as net, stage(net, balancers=2, warm_up="200ms") as made:
        yield made


@pytest.fixture
def here(site: BalancedSite) -> BalancedSite:
    site.wait_served()
    return site


def are_equal(here: BalancedSite, *, gone: str = "") -> bool:
    """Return True if both have the same table, without that server, by their digests and by the kernel."""
    for balancer in here.balancers:
        for family in VIP:
            balancer.wait_weights({name: 100 * (name != gone) for name in SERVERS}, family)
    one, other = here.balancers
    wait(lambda: one.digests() == other.digests() != {}, "the digests are equal")
    return one.buckets() == other.buckets()


def test_B2_two_balancers_program_equal_tables_also_after_a_server_has_died(here: BalancedSite) -> None:
    assert are_equal(here)
    here.servers["web-2"].kill()
    assert are_equal(here, gone="web-2")
    here.servers["web-2"].start()
    assert are_equal(here)


def test_clients_that_are_led_to_the_other_balancer_are_served_there(here: BalancedSite) -> None:
    with run_clients(here.client, VIP[4], 80, requests=1) as clients:
        first = clients.after(100)
        here.site.lead_through(2)
        # What was under way had its beginning there and its replies still come by there, out of step: it may be lost.
        settled = clients.renewed()
        here.balancers[0].namespace.run("nft", "delete", "table", "inet", "holdfast")
        second = clients.after(200)
    assert first.failed == 0
    assert (second.failed - settled.failed, second.why) == (0, settled.why)
