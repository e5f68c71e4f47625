"""Prefixes that somebody wrote into the store by hand, and that no host may have a route for."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agent.claims import RemoteRoute, route
from holdfast.testing.fault import fault
from tests.agent.harness import HostHarness
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
@fault("N21", without="holdfast.agent.gates.prefix:PrefixGate.refusal")
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
