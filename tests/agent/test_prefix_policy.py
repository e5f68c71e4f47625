"""Prefixes that somebody wrote into the store by hand, and that no host may have a route for."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agent.claims import RemoteRoute, route
from holdfast.model.fleet.prefixes import FLEET_PREFIXES, FleetPrefixes
from holdfast.store.api import Put
from holdfast.testing.fault import fault
from tests.agent.harness import REGION, HostHarness
from tests.agent.test_reconciler import P1, on_a_site, peer

STORE = "10.28.0.5"
UNDERLAY = "192.0.2.2"


@pytest.mark.parametrize(
    ("prefix", "sentence"),
    [
        ("0.0.0.0/0", "it is a default route, which would take all traffic of every host"),
        ("127.0.0.1/32", "it overlaps the loopback prefix 127.0.0.0/8"),
        ("224.0.0.0/24", "it overlaps the multicast prefix 224.0.0.0/4"),
        (f"{STORE}/32", f"it covers {STORE}, an address of the store"),
        ("192.0.2.0/24", "it covers 192.0.2.1, an address of host a"),
    ],
)
@fault(
    "N21",
    without="holdfast.agent.gates.prefix:PrefixGate.refusal",
    sees=(AssertionError, r'site.shapes == \{\*\*peer\(1\), P1: RemoteRoute\("10.99.0.1"\)\}'),
)
def test_N21_a_prefix_that_would_cut_the_host_off_is_held_with_a_sentence_and_its_neighbours_are_not(
    tmp_path: Path, prefix: str, sentence: str
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("bad", "a", prefix), fleet.runs("good", "a", "10.65.0.1/32"))
        site.start()
        await site.world.until(lambda: P1 in site.shapes)
        assert site.shapes == {**peer(1), P1: RemoteRoute("10.99.0.1")}
        held = site.running.loop.outstanding_for(route(prefix))
        assert held is not None
        assert held.gate == "prefix"
        assert f"{prefix} of endpoint a-holdfast-bad-eth0: {sentence}" in held.reason
        fleet.write(fleet.runs("bad", "a", "10.65.0.2/32"))
        await site.settled()
        assert route("10.65.0.2/32") in site.shapes

    on_a_site(scene, tmp_path, path=lambda: [STORE])


def test_a_route_that_covers_the_store_is_repaired_where_it_is_known_already(tmp_path: Path) -> None:
    stores: list[str] = []

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("etcd", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        stores.append("10.65.0.1")
        site.kernel.flush([P1])
        await site.settled()
        assert P1 in site.shapes

    on_a_site(scene, tmp_path, path=lambda: stores)


OUTSIDE = "10.99.7.1/32"
"""In none of the fleet's networks."""


def networks(*prefixes: str, bounded: bool = True) -> Put:
    """The fleet's prefixes, as the leader publishes them."""
    return Put(FLEET_PREFIXES.key(REGION, "prefixes"), FLEET_PREFIXES.encode(FleetPrefixes(prefixes, bounded)))


@fault(
    "N21",
    without="holdfast.agent.gates.prefix:PrefixGate.foreign",
    sees=(AssertionError, r"route\(OUTSIDE\) not in site.shapes"),
)
def test_N21_a_prefix_outside_the_fleets_networks_is_held_until_a_network_has_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(networks("10.65.0.0/16"), fleet.joins("a", 1))
        site.start()
        await site.settled()
        fleet.write(fleet.runs("bad", "a", OUTSIDE), fleet.runs("good", "a", "10.65.0.1/32"))
        await site.world.until(lambda: P1 in site.shapes)
        assert route(OUTSIDE) not in site.shapes
        held = site.running.loop.outstanding_for(route(OUTSIDE))
        assert held is not None
        assert held.gate == "prefix"
        assert f"{OUTSIDE} of endpoint a-holdfast-bad-eth0: it is in none of the fleet's networks" in held.reason
        fleet.write(networks("10.65.0.0/16", "10.99.7.0/24"))
        await site.world.until(lambda: route(OUTSIDE) in site.shapes)

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("published", [None, networks("10.65.0.0/16", bounded=False)], ids=["unknown", "unbounded"])
def test_only_the_fixed_refusals_apply_while_no_networks_bound_the_fleet(tmp_path: Path, published: Put | None) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(*[published] if published else [], fleet.joins("a", 1), fleet.runs("any", "a", OUTSIDE))
        site.start()
        await site.settled()
        assert route(OUTSIDE) in site.shapes

    on_a_site(scene, tmp_path)


def test_what_lies_inside_an_allowed_prefix_counts_as_inside_the_networks(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(networks("10.65.0.0/16"), fleet.joins("a", 1))
        site.start()
        await site.settled()
        fleet.write(fleet.runs("any", "a", OUTSIDE))
        await site.settled()
        assert route(OUTSIDE) in site.shapes

    on_a_site(scene, tmp_path, allowed=("10.99.0.0/16",))
