"""The leader's census opens the brake of a host that was away while much of the fleet changed, without an operator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.agent.claims import NO_OWNER, Owner
from holdfast.agent.desired.census import CensusComparison
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.host import HOST
from holdfast.model.fleet.census import CENSUS, Census, KeySum
from holdfast.reconcile import BrakeLimits
from holdfast.store.api import Event, Events, Put
from holdfast.testing.fault import fault
from tests.agent.harness import ME, REGION, Fleet, HostHarness
from tests.agent.test_reconciler import on_a_site

HOSTS = 40
ALL, LEFT, MOST = range(1, HOSTS + 1), range(21, HOSTS + 1), range(1, 36)
MINUTES = 60


def keys(numbers: Iterable[int]) -> tuple[KeySum, KeySum]:
    """Sums of the hosts of these numbers and of the endpoint that each has."""
    known = list(numbers)
    hosts = [HOST.key(REGION, f"h{n}") for n in known]
    endpoints = [ENDPOINT.key(REGION, EndpointName(f"h{n}", "holdfast", f"w{n}", "eth0")) for n in known]
    return KeySum().with_keys(hosts), KeySum().with_keys(endpoints)


def census(fleet: Fleet, numbers: Iterable[int]) -> Put:
    """The leader counted these in the inventory."""
    return Put(CENSUS.key(REGION, "census"), CENSUS.encode(Census(fleet.store.revision, *keys(numbers))))


async def all_programmed(site: HostHarness) -> Fleet:
    fleet = site.fleet()
    fleet.write(*[fleet.joins(f"h{n}", n) for n in ALL])
    fleet.write(*[fleet.runs(f"w{n}", f"h{n}", f"10.65.1.{n}/32") for n in ALL])
    site.start()
    await site.settled()
    return fleet


async def opens_nothing(site: HostHarness) -> None:
    """The census counts everything, and the brake holds all deletes."""
    site.fleet().write(census(site.fleet(), ALL))
    await asyncio.sleep(2 * MINUTES)
    assert is_complete(site, ALL)
    assert site.running.loop.held()["brake"] == len(MOST)


async def nothing_happens() -> None:
    return


async def away_while_half_of_the_fleet_left(site: HostHarness) -> None:
    fleet = await all_programmed(site)
    site.node.kill()
    gone = sorted(set(ALL) - set(LEFT))
    fleet.write(*[fleet.ends(f"w{n}", f"h{n}") for n in gone], *[fleet.leaves(f"h{n}") for n in gone])
    site.start()
    await asyncio.sleep(2 * MINUTES)
    assert site.running.loop.held()["brake"] > 0
    assert is_complete(site, ALL)


def is_complete(site: HostHarness, numbers: Iterable[int]) -> bool:
    routes = {str(key) for key in site.shapes if str(key).startswith("route 10.65.")}
    return routes == {f"route 10.65.1.{n}/32" for n in numbers}


@fault(
    "N28",
    without="holdfast.agent.desired.census:equals",
    returns=False,
    sees=(AssertionError, r'is_complete\(site, LEFT\), f"\{site.running.loop.held\(\)\} still'),
)
def test_N28_a_host_that_was_away_while_half_of_the_fleet_left_needs_no_operator(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await away_while_half_of_the_fleet_left(site)
        site.fleet().write(census(site.fleet(), LEFT))
        await asyncio.sleep(2 * MINUTES)
        assert is_complete(site, LEFT), f"{site.running.loop.held()} still wait for an operator"
        assert "brake" not in site.running.loop.held()

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_a_census_that_counts_what_the_store_lost_opens_nothing(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await away_while_half_of_the_fleet_left(site)
        site.fleet().write(census(site.fleet(), ALL))
        await asyncio.sleep(2 * MINUTES)
        assert is_complete(site, ALL)

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_a_census_opens_nothing_that_became_unwanted_after_its_revision(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await all_programmed(site)
        fleet.write(census(fleet, ALL))
        fleet.write(*[fleet.ends(f"w{n}", f"h{n}") for n in MOST])
        await asyncio.sleep(2 * MINUTES)
        assert is_complete(site, ALL)

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_a_census_opens_nothing_where_values_lost_their_networks_and_keys_stay(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await all_programmed(site)
        fleet.write(*[fleet.runs(f"w{n}", f"h{n}") for n in MOST])
        await opens_nothing(site)

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_a_census_opens_nothing_where_the_agent_lost_what_the_store_has(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await all_programmed(site)
        (watcher,) = site.running.watchers
        keys = [fleet.ends(f"w{n}", f"h{n}").key for n in MOST]
        lost = [Event.delete(key, watcher.objects.revision) for key in keys]
        await watcher.objects._apply_events(Events(watcher.objects.revision, lost))
        watcher.objects._arrived.set()
        await opens_nothing(site)

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_a_census_opens_nothing_while_the_watch_is_behind_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_events: Events) -> None:
        return

    async def scene(site: HostHarness) -> None:
        await away_while_half_of_the_fleet_left(site)
        fleet = site.fleet()
        (watcher,) = site.running.watchers
        monkeypatch.setattr(watcher.objects, "_apply_events", deaf)
        fleet.write(census(fleet, LEFT))
        fleet.write(*[fleet.joins(f"h{n}", n) for n in ALL])
        fleet.write(*[fleet.runs(f"w{n}", f"h{n}", f"10.65.1.{n}/32") for n in ALL])
        await asyncio.sleep(2 * MINUTES)
        assert is_complete(site, ALL)

    on_a_site(scene, tmp_path, limits=BrakeLimits())


@pytest.mark.parametrize(
    ("lacks", "remote", "local"),
    [
        ("", False, False),
        ("host", True, False),
        ("endpoint", True, False),
        ("target", False, False),  # the migration still announces the workload
        ("migration", False, False),
        ("target migration", False, True),
    ],
)
def test_a_claim_is_gone_with_all_of_what_announced_it(
    tmp_path: Path, lacks: str, *, remote: bool, local: bool
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        objects = {
            "host": fleet.joins("h1", 1),
            "endpoint": fleet.runs("w1", "h1", "10.65.1.1/32"),
            "target": fleet.runs("w1", ME, "10.65.1.1/32"),
            "migration": fleet.migrates("w1", "h1", ME),
        }
        known = {name: put.key for name, put in objects.items() if name not in lacks.split()}
        fleet.write(*[objects[name] for name in known])
        counted = [[known[name]] if name in known else [] for name in ("host", "migration")]
        endpoints = [known[name] for name in ("endpoint", "target") if name in known]
        sums = [KeySum().with_keys(keys) for keys in (counted[0], endpoints, counted[1])]
        fleet.write(Put(CENSUS.key(REGION, "census"), CENSUS.encode(Census(fleet.store.revision, *sums))))
        there = Owner("h1", "uid-h1", "h1-holdfast-w1-eth0")
        here = Owner(ME, "", f"{ME}-holdfast-w1-eth0")
        comparison = CensusComparison(site.node.store(), REGION, ME)
        assert await comparison.compare([there, here, Owner(ME)], nothing_happens)
        assert [comparison.is_gone(one) for one in (there, here, Owner(ME), NO_OWNER)] == [remote, local, False, False]

    on_a_site(scene, tmp_path)


def test_a_proof_does_not_outlive_the_store_that_gave_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await all_programmed(site)
        (watcher,) = site.running.watchers
        fleet.write(census(fleet, ALL))
        gone = Owner("h99")

        async def listed_again() -> None:
            watcher.census.forget()

        assert not await watcher.census.compare([gone], listed_again)
        assert (watcher.census.proven, watcher.census.is_gone(gone)) == (0, False)
        assert await watcher.census.compare([gone], nothing_happens)  # the next one counts
        assert watcher.census.proven > 0
        assert watcher.census.is_gone(gone)
        assert not watcher.census.is_gone(Owner("h1"))

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_a_census_is_read_only_while_the_brake_is_closed(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("h1", 1), fleet.runs("w1", "h1", "10.65.1.1/32"))
        fleet.write(census(fleet, [1]))
        site.start()
        await asyncio.sleep(2 * MINUTES)
        (watcher,) = site.running.watchers
        assert watcher.census.proven == 0

    on_a_site(scene, tmp_path, limits=BrakeLimits())
