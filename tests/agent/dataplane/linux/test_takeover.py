"""Another table or protocol number: what an earlier run left is taken over, and nothing of another program."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from holdfast.agent.claims import ClaimKey, ClaimKind, LocalRoute, Shape, route, rule
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.agent.dataplane.marks import KernelMark, RememberedMarks
from holdfast.agent.dataplane.open import take_over_former
from holdfast.config.sections.linux import MAIN_TABLE, LinuxSettings
from tests.agent.dataplane.linux.agent import Machine, settled
from tests.agent.dataplane.linux.harness import HostHarness, creates, direct_peer, vxlan_peer

BEFORE = LinuxSettings()
OTHERS = [
    LinuxSettings(protocol=176),
    LinuxSettings(table=7600),
    LinuxSettings(protocol=176, table=7600),
    LinuxSettings(table=MAIN_TABLE),
    LinuxSettings(protocol=176, table=MAIN_TABLE),
]
LOCAL: dict[ClaimKey, Shape] = {
    route("10.28.0.99/32"): LocalRoute("tap1"),
    route("fd00:28::99/128"): LocalRoute("tap1", 4096),
}


def everything() -> dict[ClaimKey, Shape]:
    return {**vxlan_peer(7), **direct_peer(9), **LOCAL}


def without_rules(found: dict[ClaimKey, Shape]) -> dict[ClaimKey, Shape]:
    return {key: shape for key, shape in found.items() if key.kind is not ClaimKind.RULE}


def start(
    site: HostHarness, folder: Path, settings: LinuxSettings, known: Collection[ClaimKey]
) -> dict[ClaimKey, Shape]:
    """Start with these settings; return what is ours in the kernel then."""
    with site.dataplane(settings) as dataplane:
        take_over_former(dataplane, RememberedMarks.beside(folder), settings, known.__contains__)
        return dict(asyncio.run(read(dataplane)))


async def read(dataplane: LinuxDataplane) -> dict[ClaimKey, Shape]:
    return dict(await dataplane.read())


def program(site: HostHarness, settings: LinuxSettings, wanted: dict[ClaimKey, Shape]) -> None:
    async def scene() -> None:
        with site.dataplane(settings) as dataplane:
            own = {key: shape for key, shape in dataplane.describe().own.items() if key.kind is ClaimKind.RULE}
            assert set(await dataplane.apply(creates(wanted | own))) == {None}

    asyncio.run(scene())


def marked(site: HostHarness, mark: LinuxSettings) -> str:
    """What carries that mark, as `ip` shows it."""
    routes = f"route show table {mark.table} proto {mark.protocol} 2>/dev/null || true"
    found = "".join(site.host.run("sh", "-c", f"ip {family} {routes}") for family in ("-4", "-6"))
    rules = site.ip("-4 rule show") + site.ip("-6 rule show")
    return found + "".join(line for line in rules.splitlines() if f"{mark.table} proto {mark.protocol}" in line)


@pytest.mark.parametrize("after", OTHERS, ids=lambda one: f"table {one.table}, protocol {one.protocol}")
def test_an_agent_with_other_settings_takes_over_what_the_earlier_one_left_and_back(
    site: HostHarness, tmp_path: Path, after: LinuxSettings
) -> None:
    site.interface("tap1")
    start(site, tmp_path, BEFORE, ())
    wanted = everything()
    program(site, BEFORE, wanted)
    foreign = site.ip("route show table all proto static") + site.ip("rule show")
    assert without_rules(start(site, tmp_path, after, wanted)) == wanted
    assert marked(site, BEFORE) == ""
    assert start(site, tmp_path, after, wanted) == start(site, tmp_path, after, wanted)
    found = start(site, tmp_path, BEFORE, wanted)
    assert without_rules(found) == wanted
    assert {rule(family, BEFORE.table) for family in (4, 6)} <= found.keys()
    assert marked(site, after) == ""
    assert site.ip("route show table all proto static") + site.ip("rule show") == foreign


def test_in_the_main_table_only_what_the_journal_knows_is_taken_over(site: HostHarness, tmp_path: Path) -> None:
    main = LinuxSettings(table=MAIN_TABLE)
    site.interface("tap1")
    start(site, tmp_path, main, ())
    program(site, main, LOCAL)
    site.ip("route add 10.66.0.0/24 dev tap1 proto 175")  # of another program with that number
    assert without_rules(start(site, tmp_path, BEFORE, LOCAL)) == LOCAL
    assert "10.66.0.0/24" in marked(site, main)


def test_what_is_refused_stays_and_is_taken_over_by_the_next_start(site: HostHarness, tmp_path: Path) -> None:
    after = LinuxSettings(table=7600)
    site.interface("tap1")
    start(site, tmp_path, BEFORE, ())
    program(site, BEFORE, LOCAL)
    site.ip("route add blackhole 10.28.0.99/32 table 7600 proto static")
    start(site, tmp_path, after, LOCAL)
    assert "10.28.0.99" in marked(site, BEFORE)
    site.ip("route del blackhole 10.28.0.99/32 table 7600 proto static")
    assert without_rules(start(site, tmp_path, after, LOCAL)) == LOCAL
    assert marked(site, BEFORE) == ""


def test_a_takeover_that_was_cut_off_is_completed(site: HostHarness, tmp_path: Path) -> None:
    after = LinuxSettings(protocol=176, table=7600)
    site.interface("tap1")
    start(site, tmp_path, BEFORE, ())
    wanted = everything()
    program(site, BEFORE, wanted)
    site.ip("route add 10.28.0.99/32 dev tap1 table 7600 proto 176")
    assert without_rules(start(site, tmp_path, after, wanted)) == wanted
    assert marked(site, BEFORE) == ""


def test_the_loop_goes_on_where_the_earlier_one_ended_and_prunes_what_left_meanwhile(
    site: HostHarness, tmp_path: Path
) -> None:
    machine, after = Machine(site, tmp_path), LinuxSettings(protocol=176, table=7600)
    fleet = machine.fleet
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2))
    fleet.write(fleet.runs("w1", "a", "10.65.0.1/32"), fleet.runs("w2", "b", "10.65.0.2/32"))

    async def one_run(settings: LinuxSettings) -> None:
        async with machine.agent(linux=settings) as reconciler:
            await settled(reconciler)

    start(site, tmp_path, BEFORE, ())
    asyncio.run(one_run(BEFORE))
    nexthops = site.ip("nexthop show")
    assert "10.65.0.1 " in marked(site, BEFORE)
    assert "10.65.0.2 " in marked(site, BEFORE)
    fleet.write(fleet.ends("w2", "b"))
    start(site, tmp_path, after, ())
    assert site.ip("nexthop show") == nexthops.replace("proto 175", "proto 176")
    asyncio.run(one_run(after))
    assert "10.65.0.1 " in marked(site, after)
    assert "10.65.0.2 " not in marked(site, after)
    assert marked(site, BEFORE) == ""


def test_the_marks_of_a_run_are_on_disk_before_it_programs_anything(tmp_path: Path) -> None:
    remembered = RememberedMarks.beside(tmp_path)
    one, two, three = KernelMark(7500, 175), KernelMark(7600, 175), KernelMark(254, 176)
    assert remembered.begin(one) == []
    assert remembered.begin(two) == [one]
    assert remembered.begin(three) == [one, two]
    remembered.end(three)
    assert remembered.begin(three) == []
    assert remembered.begin(one) == [three]
    (tmp_path / "agent.marks").write_text("rubbish")
    assert remembered.begin(one) == []
