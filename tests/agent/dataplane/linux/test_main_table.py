"""Metrics of routes on a real kernel, the routes of other programs in a table, and our own in the main table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.agent.claims import ARRIVAL_METRIC, ClaimKey, LocalRoute, RemoteRoute, Shape, route, rule
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.config.sections.linux import MAIN_TABLE, LinuxSettings
from tests.agent.dataplane.linux.harness import HostHarness, creates, deletes, direct_peer, replace

FOUR, SIX = route("10.28.0.5/32"), route("fd00:28::5/128")
HERE, ARRIVING = LocalRoute("tap1"), LocalRoute("tap1", ARRIVAL_METRIC)


def shown(site: HostHarness, table: str = "7500") -> Sequence[str]:
    """Routes of ours in a table."""
    words = "ip $0 route show table $1 proto 175 2>/dev/null || true"  # a table exists from its first route on
    found = [site.host.run("sh", "-c", words, family, table) for family in ("-4", "-6")]
    return [line.strip() for text in found for line in text.splitlines()]


@pytest.mark.parametrize("key", [FOUR, SIX])
@pytest.mark.parametrize(("old", "new"), [(ARRIVING, HERE), (HERE, ARRIVING)])
def test_a_route_changes_its_metric_and_there_is_never_none_and_never_two(
    site: HostHarness, dataplane: LinuxDataplane, key: ClaimKey, old: Shape, new: Shape
) -> None:
    site.interface("tap1")

    async def scene() -> None:
        assert await dataplane.apply(creates({key: old})) == [None]
        assert await dataplane.read() == {key: old}
        assert await dataplane.apply([replace(key, old, new)]) == [None]
        assert await dataplane.read([key]) == {key: new}
        assert await dataplane.read() == {key: new}
        assert len(shown(site)) == 1
        assert await dataplane.apply(deletes({key: new})) == [None]
        assert shown(site) == []

    asyncio.run(scene())


@pytest.mark.parametrize("key", [FOUR, SIX])
@pytest.mark.parametrize("wanted", [HERE, ARRIVING])
def test_of_two_routes_that_a_crash_left_the_wanted_one_stays(
    site: HostHarness, dataplane: LinuxDataplane, key: ClaimKey, wanted: Shape
) -> None:
    site.interface("tap1")
    site.ip(f"route add {key.text} dev tap1 table 7500 proto 175")
    site.ip(f"route add {key.text} dev tap1 table 7500 proto 175 metric {ARRIVAL_METRIC}")

    async def scene() -> None:
        both = (await dataplane.read())[key]
        assert both not in (HERE, ARRIVING)
        assert await dataplane.apply([replace(key, both, wanted)]) == [None]
        assert await dataplane.read() == {key: wanted}
        assert len(shown(site)) == 1

    asyncio.run(scene())


def test_a_workload_that_arrives_takes_the_place_of_the_route_to_its_host(
    site: HostHarness, dataplane: LinuxDataplane
) -> None:
    site.interface("tap1")
    peer = direct_peer(9)
    key = next(one for one, shape in peer.items() if isinstance(shape, RemoteRoute))

    async def scene() -> None:
        assert set(await dataplane.apply(creates(peer))) == {None}
        assert await dataplane.apply([replace(key, peer[key], ARRIVING)]) == [None]
        assert (await dataplane.read())[key] == ARRIVING
        assert sum(key.text.partition("/")[0] in line for line in shown(site)) == 1

    asyncio.run(scene())


def test_the_routes_of_other_programs_in_a_table_are_known(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.ip("route add 10.28.0.7/32 via 10.0.0.254 proto bird")
    site.ip("route add fd00:28::7/128 via fd00::254 proto bird")
    found = dataplane.routes_in(MAIN_TABLE)
    assert {route("10.28.0.7/32"), route("fd00:28::7/128"), route("10.0.0.0/24")} <= found
    assert FOUR not in found
    assert dataplane.routes_in(7500) == set()


def test_in_the_main_table_only_the_protocol_number_marks_what_is_ours(site: HostHarness) -> None:
    site.interface("tap1")
    site.ip("route add 10.28.0.7/32 via 10.0.0.254 proto bird")
    foreign = route("10.28.0.7/32")

    async def scene(dataplane: LinuxDataplane) -> None:
        assert rule(4, MAIN_TABLE) not in dataplane.describe().own
        assert await dataplane.apply(creates({FOUR: HERE, SIX: HERE})) == [None, None]
        assert await dataplane.read() == {FOUR: HERE, SIX: HERE}
        [refusal] = await dataplane.apply(creates({foreign: HERE}))
        assert refusal is not None
        assert await dataplane.apply(deletes({FOUR: HERE, SIX: HERE, foreign: HERE})) == [None, None, None]

    with site.dataplane(LinuxSettings(table=MAIN_TABLE)) as dataplane:
        asyncio.run(scene(dataplane))
    assert shown(site, "main") == []
    assert "10.28.0.7 via 10.0.0.254" in site.ip("route")
