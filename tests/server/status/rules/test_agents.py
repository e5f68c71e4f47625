"""Agents' reports into the inventory: which agents are alive, and what a broken store must not change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import ValidationError
from structlog.testing import capture_logs

from holdfast.inventory.changes import WantedObject
from holdfast.model.base.time import seconds
from holdfast.model.calico.agent_status import AgentStatus
from holdfast.model.calico.host import HOST
from holdfast.model.fleet.observed import AgentSeen
from holdfast.server.status.term import StatusTerm
from holdfast.store.api import Deposed
from holdfast.store.mirror.pending import Delta
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, host
from tests.server.harness import StatusHarness, agent_key, status_harness, status_key


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        yield made


def test_a_report_makes_an_agent_alive(here: StatusHarness) -> None:
    async def scenario() -> None:
        await here.report("r1")
        async with here.agents() as working:
            await working.turn()

    asyncio.run(scenario())
    assert here.rows("agent") == {agent_key("r1"): b'{"alive":true,"reported":"2026-01-01T00:16:40Z","uptime":12.0}'}


def test_an_agent_whose_key_is_gone_is_down_at_once_and_its_last_report_is_kept(here: StatusHarness) -> None:
    async def scenario() -> AgentSeen:
        here.editor.change([host(1)], who="alice")
        await here.report("r1")
        async with here.agents() as working:
            await working.turn()
            await here.silence("r1")
            await working.turn()
            return working.memory[agent_key("r1")]

    seen = asyncio.run(scenario())
    assert not seen.alive
    assert seen.reported == "2026-01-01T00:16:40Z"


def test_a_host_that_never_reported_is_listed_as_silent(here: StatusHarness) -> None:
    async def scenario() -> None:
        here.editor.change([host(1)], who="alice")
        async with here.agents() as working:
            await working.turn()

    asyncio.run(scenario())
    assert here.rows("agent") == {agent_key("r1"): b'{"alive":false}'}


def test_a_host_that_leaves_the_inventory_and_is_silent_is_forgotten(here: StatusHarness) -> None:
    async def scenario() -> None:
        here.editor.change([host(1), host(2)], who="alice")
        async with here.agents() as working:
            await working.turn()
            here.editor.change([WantedObject(HOST, "r1")], who="alice")
            working.term.feed.inventory_changed()
            await working.turn()

    asyncio.run(scenario())
    assert list(here.rows("agent")) == [agent_key("r2")]


def test_many_reports_of_one_host_are_one_write(here: StatusHarness) -> None:
    async def scenario() -> int:
        async with here.agents() as working:
            await working.turn()
            for _ in range(50):
                here.clock.advance(seconds(30))
                await here.report("r1")
            await working.turn()
            return working.term.target.writes

    assert asyncio.run(scenario()) == 1


def test_a_heartbeat_is_counted_and_not_logged(here: StatusHarness) -> None:
    async def scenario() -> str:
        async with here.agents() as working:
            await here.report("r1")
            await working.turn()
            for _ in range(3):
                here.clock.advance(seconds(30))
                await here.report("r1")
                await working.turn()
            return working.term.context.metrics.text()

    metrics = asyncio.run(scenario())
    assert here.decisions() == ["create agent r1: applied"]
    assert 'holdfast_changes_total{op="replace",outcome="applied"} 3.0' in metrics


def test_a_takeover_writes_nothing_when_nothing_differs(here: StatusHarness) -> None:
    async def scenario() -> int:
        for number in range(20):
            await here.report(f"r{number}")
        async with here.agents() as working:
            await working.turn()
        async with here.agents() as working:
            await working.turn()
            return working.term.target.writes

    assert asyncio.run(scenario()) == 0


def test_a_deposed_leader_writes_nothing(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with here.agents() as old, here.agents() as new:
            await here.report("r1")
            await new.turn()
            here.clock.advance(seconds(30))
            await here.report("r1")
            with pytest.raises(Deposed):
                await old.turn()

    asyncio.run(scenario())
    assert b"00:16:40Z" in here.rows("agent")[agent_key("r1")]


@fault(
    "C13",
    without="holdfast.model.base.kind:Kind.decode",
    by="tests.server.status.without_protection:decode_or_die",
    sees=(ValidationError, "Expected `object`, got `str`"),
)
def test_C13_a_report_that_is_json_but_no_object_is_present_and_stops_nothing(here: StatusHarness) -> None:
    async def scenario() -> dict[bytes, AgentSeen]:
        await here.world.put(agent_key("r1"), b'"up"')
        await here.report("r2")
        async with here.agents() as working:
            await working.turn()
            await here.world.put(agent_key("r2"), b"[1, 2]")
            await here.report("r3")
            await working.turn()
            assert len(working.term.mirror.bad) == 2
            return working.memory

    memory = asyncio.run(scenario())
    assert {key: seen.alive for key, seen in memory.items()} == {
        agent_key("r1"): True,
        agent_key("r2"): True,
        agent_key("r3"): True,
    }


def test_a_host_of_which_nothing_was_ever_readable_is_present_until_its_key_is_gone(here: StatusHarness) -> None:
    async def scenario() -> list[list[bytes]]:
        async with here.agents() as working:
            await working.turn()
            seen = []
            for act in (here.world.put(agent_key("r1"), b"[]"), here.world.delete(agent_key("r1"))):
                await act
                await working.turn()
                await working.turn()
                seen.append(list(here.rows("agent")))
            return seen

    with capture_logs() as logs:
        assert asyncio.run(scenario()) == [[agent_key("r1")], []]
    assert len([one for one in logs if one["event"] == "unreadable value skipped"]) == 1


@fault(
    "C30",
    without="holdfast.server.status.rules.agents:is_report_of_agent",
    returns=True,
    sees=(AssertionError, r"asyncio.run\(scenario\(\)\) == \(0, 1\)"),
)
def test_C30_what_is_said_about_endpoints_is_nothing_to_the_agents_worker(here: StatusHarness) -> None:
    async def scenario() -> tuple[int, int]:
        async with here.agents() as working:
            await here.report("r1")
            await working.turn()
            for number in range(100):
                await here.world.put(status_key(number), b'{"status":"up"}')
            for _ in range(30):
                await asyncio.sleep(0)
            mirror = working.term.mirror
            return mirror.backlog, len(mirror.objects)

    assert asyncio.run(scenario()) == (0, 1)


@fault(
    "C14",
    without="holdfast.server.status.source:StatusSource._check",
    sees=(AssertionError, r'asyncio.run\(scenario\(\)\) == "waiting: store"'),
)
def test_C14_nothing_is_concluded_before_one_whole_list_has_come(here: StatusHarness) -> None:
    async def scenario() -> str:
        here.editor.change([host(number) for number in range(1, 4)], who="alice")
        for number in range(1, 4):
            await here.report(f"r{number}")
        async with here.agents() as working:
            await working.turn()
        async with here.agents(cut_off=True) as working:
            await working.turn()
            return working.term.context.vitals.state

    assert asyncio.run(scenario()) == "waiting: store"
    assert all(b'"alive":true' in doc for doc in here.rows("agent").values())
    assert len(here.rows("agent")) == 3


def test_an_old_report_is_warned_about_while_it_is_handled(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with here.agents() as working:
            await working.turn()
            await here.report("r1", ago=400)
            await working.turn()

    with capture_logs() as logs:
        asyncio.run(scenario())
    (warning,) = [one for one in logs if one["event"] in ("status is behind", "report is stale")]
    assert (warning["event"], warning["host"], warning["age_s"]) == ("report is stale", "r1", 400)
    assert warning["cause"].startswith("the agent reported late")


def test_old_reports_in_the_first_list_are_nothing_to_warn_about(here: StatusHarness) -> None:
    async def scenario() -> None:
        await here.report("r1", ago=4_000)
        async with here.agents() as working:
            await working.turn()

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert not [one for one in logs if one["event"] in ("status is behind", "report is stale")]


def test_hosts_are_those_of_this_region(here: StatusHarness) -> None:
    assert here.observed.hosts(REGION.name) == []


@pytest.mark.parametrize("looked", [False, True], ids=["as told", "looked at before it was told"])
def test_what_was_learned_of_a_clock_goes_with_its_agent(here: StatusHarness, looked: bool) -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        async with here.agents() as working:
            await working.turn()
            staleness = working.term.staleness
            await here.report("r1", ago=40)
            await working.turn()
            before = list(staleness.offsets)
            await here.silence("r1")
            if looked:
                await working.fill_mirror()
                working.term.reconciler.dirty.mark_all()
                await working.term.reconciler.turn()
            await working.turn()
            return before, list(staleness.offsets)

    assert asyncio.run(scenario()) == (["r1"], [])


@pytest.mark.parametrize("doc", [b"{", b"[]", b'{"alive":"perhaps"}'])
def test_a_row_that_cannot_be_read_is_written_anew_or_removed(here: StatusHarness, doc: bytes) -> None:
    async def scenario() -> None:
        here.editor.change([host(1)], who="alice")
        async with here.agents() as working:
            fence, at = working.term.target._fence, here.clock.wall()
            rows = {doc: [agent_key("r1"), agent_key("gone")]}
            here.observed.write(fence, "agent", rows, (), at)
            await working.turn()

    asyncio.run(scenario())
    assert here.rows("agent") == {agent_key("r1"): b'{"alive":false}'}


def test_what_was_learned_of_a_clock_ends_with_the_term(here: StatusHarness) -> None:
    async def scenario() -> None:
        here.editor.change([host(1), host(2)], who="alice")
        async with here.agents() as working:
            for _ in range(3):
                here.clock.advance(seconds(30))
                await here.report("r1", ago=3_600)
                await working.turn()
            assert working.term.staleness.skews()["r1"]
            again = here.begin(working.term.kind, working.term.target._fence, working.term.staleness)
            again.check()
            assert not again.staleness.offsets
            assert not again.staleness.delays

    asyncio.run(scenario())


def test_a_time_that_goes_on_and_on_is_not_written_down(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with here.agents() as working:
            await here.world.put(agent_key("r1"), b'{"time": "%s"}' % (b"2026" * 1_000))
            await working.turn()
            assert working.memory[agent_key("r1")].alive
            assert len(working.term.mirror.bad) == 1

    asyncio.run(scenario())
    assert here.rows("agent") == {agent_key("r1"): b'{"alive":true}'}


def figures(term: StatusTerm[Any, Any]) -> dict[str, float]:
    samples = (one for family in term.context.metrics.registry.collect() for one in family.samples)
    return {one.name + "".join(f" {value}" for value in one.labels.values()): one.value for one in samples}


def test_backlog_clock_and_delay_are_exported_by_the_leader_only(here: StatusHarness) -> None:
    async def scenario() -> tuple[dict[str, float], dict[str, float]]:
        async with here.agents() as working:
            for _ in range(3):
                here.clock.advance(seconds(30))
                await here.report("r1", ago=-41)
                await working.turn()
            await here.report("r2", ago=400)
            await here.world.put(agent_key("r3"), b'{"time": "yesterday"}')
            await here.world.put(agent_key("r4"), b"rubbish")
            await working.turn()
            await working.turn()  # what cannot be read is found when somebody looks around
            term = working.term
            term.feed.take([Delta(agent_key("r5"), AgentStatus(), live=True)], term.behind())
            term.feed._since = here.clock.now()
            here.clock.advance(seconds(12))
            term.check()
            shown = figures(term)
            term._metrics.clear()
            return shown, figures(term)

    shown, after = asyncio.run(scenario())
    assert shown["holdfast_clock_skew_seconds"] == 41
    assert shown["holdfast_agent_delay_seconds"] == 400
    assert shown["holdfast_status_behind_seconds"] == 12
    assert shown["holdfast_stale_reports_total agent"] == 1
    assert shown["holdfast_stale_reports_total backlog"] == shown["holdfast_stale_reports_total clock"] == 0
    assert shown["holdfast_unparseable_reports_total"] == 1
    assert shown["holdfast_bad_keys"] == 1
    assert shown["holdfast_objects agent alive"] == 4
    gauges = ("clock_skew_seconds", "agent_delay_seconds", "status_behind_seconds", "bad_keys")
    assert [after[f"holdfast_{name}"] for name in gauges] == [0] * 4
    assert "holdfast_objects agent alive" not in after
