"""The reporter: Felix's keys every 30 s under a lease that only reports renew, and a report when something changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.agent.report.reporter import Reporter
from holdfast.agent.report.reporting_host import ReportingHost
from holdfast.agent.report.schedule import ReportIntervals, clock_skew
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant, seconds
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS, AgentStatus
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.model.fleet.agent_report import AGENT_REPORT, REPORT_LIMIT, AgentReport, GateReport, ObjectProblem
from holdfast.store.api import Entry
from holdfast.store.identity import SeenStore
from holdfast.testing import Fate, World, simulate
from holdfast.testing.fault import fault

REGION = Region()
HOST = "r12-07"
SINCE = datetime(2026, 1, 1, tzinfo=UTC)


class Reporting:
    """A reporter on a machine, beside a worker that answers, or does not."""

    def __init__(self, world: World, node: str = HOST, *, boot: str = "boot-1", instance: str = "") -> None:
        machine = world.node(node)
        self.client = machine.store()
        self.answer: AgentReport | None = AgentReport(version="1", boot_id=boot, counts={"programmed": 3})
        self.states: list[str] = []
        self.remembered: SeenStore | None = None
        self.reporter = Reporter(
            self.client,
            ReportingHost(REGION, HOST, boot, instance),
            seconds(90),
            ReportIntervals(),
            machine.clock,
            query_worker=self._query_worker,
            remembered=lambda: self.remembered,
            show=lambda _, state: self.states.append(state),
        )
        self.stopping = asyncio.Event()
        self.task = asyncio.create_task(self.reporter.run(self.stopping))

    async def _query_worker(self) -> AgentReport | None:
        return self.answer

    async def stop(self) -> None:
        self.stopping.set()
        await self.task


def scene(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    simulate(1, story)


def stored(world: World, kind: Kind[Any, str]) -> Entry | None:
    return world.store.keys.get(kind.key(REGION, HOST))


def status(world: World, kind: Kind[AgentStatus, str] = AGENT_STATUS) -> AgentStatus | None:
    entry = stored(world, kind)
    found = kind.decode(entry.key, entry.value) if entry else None
    assert not isinstance(found, Bad)
    return found


def report(world: World) -> AgentReport:
    entry = stored(world, AGENT_REPORT)
    assert entry is not None
    found = AGENT_REPORT.decode(entry.key, entry.value)
    assert not isinstance(found, Bad)
    return found


def writes(world: World, key: bytes) -> int:
    return sum(event.key == key for write in world.store.history for event in write.events)


def test_alive_is_reported_every_30_s_in_felix_format_and_the_first_report_is_marked() -> None:
    async def story(world: World) -> None:
        Reporting(world)
        await asyncio.sleep(1)
        first, last = status(world), status(world, LAST_STATUS)
        assert first is not None
        assert (first.first_update, first.time, last) == (True, "2026-01-01T00:00:00Z", first)
        await asyncio.sleep(31)
        second = status(world)
        assert second is not None
        assert (second.first_update, second.uptime is not None and 29 < second.uptime < 33) == (False, True)
        assert writes(world, AGENT_STATUS.key(REGION, HOST)) == 2

    scene(story)


def test_troubles_that_no_report_has_room_for_are_no_news_every_five_seconds() -> None:
    async def story(world: World) -> None:
        here = Reporting(world)
        troubles = tuple(ObjectProblem(f"route 10.0.0.{n}/32", "held", "delete: too many", SINCE) for n in range(200))
        here.answer = AgentReport(version="1", boot_id="boot-1", troubles=troubles)
        await asyncio.sleep(95)
        assert report(world).troubles_left_out >= 150
        assert writes(world, AGENT_REPORT.key(REGION, HOST)) == 4

    scene(story)


def test_a_gate_with_an_absurd_sentence_does_not_stop_the_reports() -> None:
    async def story(world: World) -> None:
        here = Reporting(world)
        gate = GateReport(
            "interface",
            "the interface that it needs is not ready",
            SINCE,
            scope=f"interface {'x' * 2_000_000} is not there",
        )
        here.answer = AgentReport(version="1", boot_id="boot-1", gates=(gate,) * 60)
        await asyncio.sleep(1)
        assert status(world) is not None
        entry = stored(world, AGENT_REPORT)
        assert entry is not None
        assert len(entry.value) <= REPORT_LIMIT

    scene(story)


def test_only_the_keys_of_this_host_are_written() -> None:
    async def story(world: World) -> None:
        Reporting(world)
        await asyncio.sleep(100)
        keys = {event.key.decode() for write in world.store.history for event in write.events}
        assert keys == {
            "/calico/felix/v2/no-region/host/r12-07/status",
            "/calico/felix/v2/no-region/host/r12-07/last_reported_status",
            "/holdfast/v1/no-region/agents/r12-07",
        }

    scene(story)


def test_status_and_report_are_under_one_lease_and_the_last_status_is_under_none() -> None:
    async def story(world: World) -> None:
        Reporting(world)
        await asyncio.sleep(1)
        alive, last, full = (stored(world, kind) for kind in (AGENT_STATUS, LAST_STATUS, AGENT_REPORT))
        assert alive is not None
        assert last is not None
        assert full is not None
        assert alive.lease == full.lease != 0
        assert last.lease == 0

    scene(story)


def test_a_change_is_written_within_5_s_of_the_last_write_and_not_sooner() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        await asyncio.sleep(1.5)
        for count in range(100):
            one.answer = AgentReport(version="1", boot_id="boot-1", counts={"failed": count})
            await asyncio.sleep(0.1)
        assert writes(world, AGENT_REPORT.key(REGION, HOST)) <= 3
        await asyncio.sleep(6)
        assert report(world).counts == {"failed": 99}

    scene(story)


def test_counts_that_change_with_the_fleet_wait_for_the_next_full_report() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        await asyncio.sleep(1.5)
        one.answer = AgentReport(version="1", boot_id="boot-1", counts={"programmed": 4}, synced_revision=77)
        await asyncio.sleep(20)
        assert writes(world, AGENT_REPORT.key(REGION, HOST)) == 1
        await asyncio.sleep(12)
        assert (report(world).counts, report(world).synced_revision) == ({"programmed": 4}, 77)

    scene(story)


def test_a_change_between_two_full_reports_keeps_the_revision_of_the_last_one() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        one.answer = AgentReport(version="1", boot_id="boot-1", synced_revision=77)
        await asyncio.sleep(1.5)
        one.answer = AgentReport(version="1", boot_id="boot-1", counts={"failed": 1}, synced_revision=80)
        await asyncio.sleep(10)
        assert (report(world).counts, report(world).synced_revision) == ({"failed": 1}, 77)

    scene(story)


def test_a_report_of_a_thousand_problems_fits_and_counts_those_left_out() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        troubles = tuple(ObjectProblem(f"route 10.0.{n}.0/24", "failed", "no room " * 9, SINCE) for n in range(1_000))
        one.answer = AgentReport(version="1", boot_id="boot-1", troubles=troubles, counts={"failed": 1_000})
        await asyncio.sleep(1.5)
        entry = stored(world, AGENT_REPORT)
        assert entry is not None
        assert len(entry.value) <= REPORT_LIMIT
        assert len(report(world).troubles) + report(world).troubles_left_out == 1_000

    scene(story)


def test_a_stop_leaves_the_host_alive_for_as_long_as_the_lease_lasts() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        await asyncio.sleep(2)
        await one.stop()
        await asyncio.sleep(80)
        assert status(world) is not None
        await asyncio.sleep(20)
        assert status(world) is None
        assert status(world, LAST_STATUS) is not None

    scene(story)


def test_a_restart_goes_on_with_the_lease_of_its_predecessor() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        await asyncio.sleep(2)
        before = stored(world, AGENT_STATUS)
        await one.stop()
        Reporting(world)
        await asyncio.sleep(100)
        after = stored(world, AGENT_STATUS)
        assert before is not None
        assert after is not None
        assert (after.lease, after.create_revision) == (before.lease, before.create_revision)

    scene(story)


def test_after_a_reboot_the_lease_of_the_last_boot_is_left_alone() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        await asyncio.sleep(2)
        before = stored(world, AGENT_STATUS)
        await one.stop()
        Reporting(world, boot="boot-2")
        await asyncio.sleep(100)
        after = stored(world, AGENT_STATUS)
        assert before is not None
        assert after is not None
        assert after.lease != before.lease

    scene(story)


def test_a_lease_that_ran_out_is_followed_by_another() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        await asyncio.sleep(2)
        one.client.link.cut()
        await asyncio.sleep(200)
        assert status(world) is None
        one.client.link.heal()
        await asyncio.sleep(20)
        again = status(world)
        assert again is not None
        assert not again.first_update
        assert one.states[-1] == "ok"

    scene(story)


def test_an_unreachable_store_is_waited_for_and_named() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        one.client.link.next_calls(Fate.REPLY_LOST, of="txn")
        await asyncio.sleep(7)
        assert "waiting: store" in one.states
        await asyncio.sleep(5)
        assert status(world) is not None

    scene(story)


def test_a_store_of_another_fleet_is_not_written_to() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        one.remembered = SeenStore("kelp", 1, 1)
        await world.connect("other").put(IDENTITY.key(REGION, "identity"), IDENTITY.encode(Identity("wrack", 1)))
        await asyncio.sleep(100)
        assert status(world) is None
        assert one.states[-1] == "held: foreign_store"

    scene(story)


def test_a_store_that_becomes_another_fleets_gets_no_further_report() -> None:
    async def story(world: World) -> None:
        key, operator = IDENTITY.key(REGION, "identity"), world.connect("other")
        await operator.put(key, IDENTITY.encode(Identity("kelp", 1)))
        one = Reporting(world)
        one.remembered = SeenStore("kelp", 1, 1)
        await asyncio.sleep(40)
        written = writes(world, AGENT_REPORT.key(REGION, HOST))
        assert written == 2
        await operator.put(key, IDENTITY.encode(Identity("wrack", 1)))
        one.answer = AgentReport(version="1", boot_id="boot-1", counts={"failed": 1})
        await asyncio.sleep(60)  # less than the lease
        assert (writes(world, AGENT_REPORT.key(REGION, HOST)), one.states[-1]) == (written, "held: foreign_store")
        await operator.put(key, IDENTITY.encode(Identity("kelp", 2)))
        await asyncio.sleep(40)
        assert (report(world).counts, one.states[-1]) == ({"failed": 1}, "ok")

    scene(story)


def test_the_identity_of_the_store_is_read_once_and_compared_with_each_write() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        reads = 0
        get = one.client.get

        async def counted(key: bytes, *, revision: int = 0) -> Entry | None:
            nonlocal reads
            reads += key == IDENTITY.key(REGION, "identity")
            return await get(key, revision=revision)

        one.client.get = counted  # type: ignore[method-assign]
        await asyncio.sleep(200)
        assert writes(world, AGENT_REPORT.key(REGION, HOST)) > 5
        assert reads <= 2  # once more with the first report, which takes a key over

    scene(story)


def test_of_two_agents_of_one_name_on_a_machine_the_second_is_held_until_the_first_has_stopped() -> None:
    async def story(world: World) -> None:
        one = Reporting(world, instance="1a-7")
        await asyncio.sleep(2)
        other = Reporting(world, "r12-08", instance="1a-9")
        other.answer = AgentReport(version="1", boot_id="boot-1", counts={"failed": 9})
        for count in range(40):  # the first writes at irregular times, and the second has news all the time
            one.answer = AgentReport(version="1", boot_id="boot-1", counts={"failed": count % 3})
            await asyncio.sleep(7)
            assert report(world).instance == "1a-7"
        sentence = "another agent reports as r12-07 (on this machine): give one of the two another agent.host"
        assert other.states[-1] == f"refused: {sentence}"
        assert (one.reporter.duplicate, other.reporter.duplicate) == ("", sentence)
        await one.stop()
        await asyncio.sleep(60)
        assert (report(world).instance, other.states[-1], other.reporter.duplicate) == ("1a-9", "ok", "")
        assert status(world) is not None
        gone = [e for write in world.store.history for e in write.events if e.entry is None]
        assert gone == [], "the host was alive throughout"

    scene(story)


def test_two_agents_of_one_name_that_start_at_once_on_a_machine_do_not_both_report() -> None:
    async def story(world: World) -> None:
        two = [Reporting(world, name, instance=name) for name in ("r12-07", "r12-08")]
        await asyncio.sleep(200)
        assert sorted(one.states[-1].partition(":")[0] for one in two) == ["ok", "refused"]
        assert len({write.client for write in world.store.history}) == 1

    scene(story)


def lease_of_the_report(world: World) -> int:
    entry = world.store.keys.get(AGENT_REPORT.key(REGION, HOST))
    assert entry is not None
    return entry.lease


@pytest.mark.parametrize("before", ["", "1a-7"])
def test_an_earlier_run_of_the_same_agent_is_no_other_agent_and_its_lease_is_taken_over(before: str) -> None:
    async def story(world: World) -> None:
        one = Reporting(world, instance=before)
        await asyncio.sleep(10)
        await one.stop()
        lease = lease_of_the_report(world)
        two = Reporting(world, instance="1a-7")
        await asyncio.sleep(100)
        assert (two.reporter.duplicate, lease_of_the_report(world)) == ("", lease)

    scene(story)


def test_another_agent_of_the_same_name_is_noticed_and_named() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        other = Reporting(world, "r12-08", boot="boot-9")
        await asyncio.sleep(100)
        assert "another agent reports as r12-07 (boot id boot-9)" in one.reporter.duplicate
        await other.stop()
        await asyncio.sleep(70)
        assert one.reporter.duplicate == ""

    scene(story)


@pytest.mark.parametrize(
    ("ahead", "told"), [(0.5, 0.0), (1.2, 0.0), (42.3, 41.8), (-41.0, -41.5), (None, None)], ids=str
)
def test_a_clock_that_is_off_is_reported_against_the_stores(ahead: float | None, told: float | None) -> None:
    now = Instant(5_000_000_000)
    dated = None if ahead is None else (SINCE, now - seconds(3))
    assert clock_skew(SINCE + seconds(3 + (ahead or 0)), now, dated) == told


@fault(
    "N17",
    without="holdfast.agent.report.schedule:is_silent",
    returns=False,
    sees=(AssertionError, r"status\(world\) is None"),
)
def test_a_host_whose_worker_hangs_is_alive_only_until_its_lease_runs_out() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        await asyncio.sleep(100)
        assert status(world) is not None
        one.answer = None
        await asyncio.sleep(300)
        assert status(world) is None

    scene(story)


def test_a_worker_that_is_started_again_within_half_a_minute_costs_nothing() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        await asyncio.sleep(25)
        answer, one.answer = one.answer, None
        await asyncio.sleep(20)
        one.answer = answer
        await asyncio.sleep(100)
        gone = [e for write in world.store.history for e in write.events if e.entry is None]
        assert gone == []

    scene(story)


def test_nothing_is_reported_before_the_worker_has_answered() -> None:
    async def story(world: World) -> None:
        one = Reporting(world)
        one.answer = None
        await asyncio.sleep(100)
        assert world.store.history == []

    scene(story)
