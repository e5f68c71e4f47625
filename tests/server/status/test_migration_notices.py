"""Live migrations: the webhook is notified of an arrival; once in practice, at least once in any case."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.inventory.api import DatabaseAway
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import FLEET
from holdfast.reconcile import PauseGate
from holdfast.server.election.leadership import Leading, NotLeading
from holdfast.server.status.migration_notices import MigrationNotices
from holdfast.server.webhook import Webhook
from holdfast.store.api import StoreRefused
from holdfast.testing.real.processes import reserved_ports
from tests.inventory.harness import REGION
from tests.server.harness import StatusHarness, status_harness
from tests.server.webhook_server import GARBAGE, Hook

SOURCE = EndpointName("r1", "holdfast", "w1", "eth0")
MOVE = Migration.of(REGION, SOURCE, "r2")
KEY = MIGRATION.key(REGION, MOVE.target)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        yield made


class Telling:
    """A leader that tells arrivals, turned by hand."""

    def __init__(self, notices: MigrationNotices, pause: PauseGate[bytes]) -> None:
        self.notices = notices
        self.pause = pause

    async def turn(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)
        self.notices.reconciler.dirty.mark_all()
        await self.notices.reconciler.turn()


@contextlib.asynccontextmanager
async def telling(here: StatusHarness, hook: Hook, *, leads: bool = True) -> AsyncIterator[Telling]:
    async with here.endpoints() as working:
        term = working.term
        said = here.leadership.check()

        async def confirm() -> Leading | NotLeading:
            assert isinstance(said, Leading)
            return said if leads else NotLeading(None, here.clock.now())  # type: ignore[arg-type]

        notices = MigrationNotices(
            term.context,
            term.kind,
            here.world,
            term.target._fence,
            leadership=here.leadership,
            pause=term.pause,
            notify=Webhook(hook.url),
            confirm=confirm,
        )
        following = asyncio.create_task(notices.mirror.run())
        await notices.mirror.wait_synced()
        try:
            yield Telling(notices, term.pause)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def migrate(here: StatusHarness) -> None:
    await here.world.put(KEY, MIGRATION.encode(MOVE))


async def arrive(here: StatusHarness) -> None:
    """The agent of the target host is alive, and reports that the workload is up there."""
    await here.report("r2")
    await here.say(1, EndpointState.UP, on="r2")


def test_the_webhook_is_not_called_before_the_workload_is_up_on_its_new_host(here: StatusHarness, hook: Hook) -> None:
    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await migrate(here)
            await here.say(1, EndpointState.UP, on="r1")
            await here.say(1, EndpointState.DOWN, on="r2")
            await leader.turn()

    asyncio.run(scenario())
    assert hook.heard == []


def test_an_arrival_is_notified_once_with_its_idempotency_key(here: StatusHarness, hook: Hook) -> None:
    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            for _ in range(3):
                await leader.turn()

    asyncio.run(scenario())
    ((key, told),) = hook.heard
    assert told["idempotency_key"] == key
    assert told["event"] == "live-migration-arrived"
    assert (told["endpoint"], told["from"], told["to"]) == ("holdfast-w1-eth0", "r1", "r2")
    assert here.decisions() == ["create migration r2-holdfast-w1-eth0: applied"]


def test_an_arrival_is_held_while_the_fleet_is_paused_and_notified_after_it(here: StatusHarness, hook: Hook) -> None:
    now, wall = here.clock.now(), here.clock.wall()
    pause = Intent(what=IntentKind.PAUSE, scope=FLEET, who="alice", why="moving racks", since=wall)

    async def scenario() -> list[str | None]:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            leader.pause.set([pause], wall, now)
            await leader.turn()
            held = [one["held"] for one in leader.notices.about("holdfast-w1-eth0")]
            assert hook.heard == []
            leader.pause.set([], wall, now)
            await leader.turn()
            return held

    (sentence,) = asyncio.run(scenario())
    assert sentence is not None
    assert "moving racks" in sentence
    assert sentence.endswith("To release: holdfast resume fleet")
    assert len(hook.heard) == 1


@pytest.mark.parametrize("answer", [GARBAGE, 302, 303])
def test_an_answer_that_is_none_of_a_webhook_takes_nothing_and_ends_nothing(
    here: StatusHarness, hook: Hook, answer: int
) -> None:
    hook.answers = [answer]

    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            await leader.turn()
            assert not leader.notices.target.written
            here.clock.advance(seconds(60))
            await leader.turn()

    asyncio.run(scenario())
    assert len(hook.heard) == 2


def test_a_refused_notice_is_tried_again_with_the_same_key(here: StatusHarness, hook: Hook) -> None:
    hook.answers = [500, 503]

    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            for _ in range(4):
                await leader.turn()
                here.clock.advance(seconds(60))

    asyncio.run(scenario())
    assert len(hook.heard) == 3
    assert len({key for key, _ in hook.heard}) == 1


def test_the_next_leader_does_not_tell_it_again(here: StatusHarness, hook: Hook) -> None:
    async def scenario() -> None:
        await migrate(here)
        await arrive(here)
        for _ in range(2):
            async with telling(here, hook) as leader:
                await leader.turn()

    asyncio.run(scenario())
    assert len(hook.heard) == 1


def test_a_leader_that_died_between_call_and_record_is_followed_by_a_call_with_the_same_key(
    here: StatusHarness, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_arguments: object) -> None:
        raise DatabaseAway("it has just died")

    async def scenario() -> None:
        await migrate(here)
        await arrive(here)
        with monkeypatch.context() as patched:
            patched.setattr(here.observed, "write", gone)
            async with telling(here, hook) as leader:
                await leader.turn()
        async with telling(here, hook) as leader:
            await leader.turn()
            await leader.turn()

    asyncio.run(scenario())
    assert len(hook.heard) == 2
    assert hook.heard[0] == hook.heard[1]


def test_a_flapping_status_is_not_notified_again(here: StatusHarness, hook: Hook) -> None:
    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            await leader.turn()
            await here.say(1, EndpointState.ERROR, on="r2")
            await leader.turn()
            await here.say(1, EndpointState.UP, on="r2")
            await leader.turn()

    asyncio.run(scenario())
    assert len(hook.heard) == 1


def test_the_next_migration_is_notified_when_the_agent_reports_up_again(here: StatusHarness, hook: Hook) -> None:
    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            await leader.turn()
            await here.world.delete(KEY)
            await leader.turn()
            assert leader.notices.target.written == {}
            await migrate(here)
            await leader.turn()
            assert len(hook.heard) == 1
            await here.say(1, EndpointState.UP, on="r2")
            await leader.turn()

    asyncio.run(scenario())
    assert len({key for key, _ in hook.heard}) == len(hook.heard) == 2


def test_a_report_from_before_the_migration_counts_when_its_live_agent_leaves_it_in_place(
    here: StatusHarness, hook: Hook
) -> None:
    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await arrive(here)
            await migrate(here)
            for heard in (0, 0, 1):
                await leader.turn()
                await leader.turn()
                assert len(hook.heard) == heard
                await here.report("r2")
            await leader.turn()

    asyncio.run(scenario())
    assert len(hook.heard) == 1


def test_an_old_report_of_an_agent_that_comes_back_does_not_count_before_its_second_heartbeat(
    here: StatusHarness, hook: Hook
) -> None:
    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await arrive(here)
            await migrate(here)
            for _ in range(3):
                await here.silence("r2")
                await leader.turn()
                await here.report("r2")
                await leader.turn()
            await here.say(1, EndpointState.DOWN, on="r2")
            await here.report("r2")
            await leader.turn()

    asyncio.run(scenario())
    assert hook.heard == []


def test_the_report_of_a_host_whose_agent_is_dead_does_not_count(here: StatusHarness, hook: Hook) -> None:
    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            await here.silence("r2")
            await leader.turn()
            assert hook.heard == []
            await here.report("r2")
            await leader.turn()

    asyncio.run(scenario())
    assert len(hook.heard) == 1


def test_the_decision_log_has_what_the_webhook_was_notified_of_and_forgot(here: StatusHarness, hook: Hook) -> None:
    hook.answers = [503]

    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            await leader.turn()
            here.clock.advance(seconds(60))
            await leader.turn()
            await here.world.delete(KEY)
            await leader.turn()

    asyncio.run(scenario())
    assert [(one.worker, one.sentence) for one in here.decision_records()] == [
        ("webhook", "the webhook answered 503"),
        ("webhook", "was notified of migration r2-holdfast-w1-eth0"),
        ("webhook", "forgot: last wanted by reports, no longer wanted"),
    ]


def test_a_server_that_no_longer_leads_calls_no_webhook(here: StatusHarness, hook: Hook) -> None:
    async def scenario() -> None:
        async with telling(here, hook, leads=False) as leader:
            await migrate(here)
            await arrive(here)
            await leader.turn()

    asyncio.run(scenario())
    assert hook.heard == []


def test_an_unreachable_webhook_is_an_error_of_the_change(here: StatusHarness, hook: Hook) -> None:
    with reserved_ports(1) as (closed,):
        refusal = asyncio.run(Webhook(f"http://127.0.0.1:{closed}/arrived")({"idempotency_key": "k"}))
    assert refusal is not None
    assert refusal.startswith("the webhook cannot be reached")


def test_a_store_that_refuses_to_show_migrations_does_not_end_the_work_beside(
    here: StatusHarness, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> None:
        raise StoreRefused("no permission to read that")

    async def scenario() -> bool:
        async with telling(here, hook) as leader:
            monkeypatch.setattr(leader.notices.mirror, "run", refused)
            working = asyncio.create_task(leader.notices.run(asyncio.Event()))
            await asyncio.sleep(0.05)
            ended = working.done()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            return ended

    assert not asyncio.run(scenario())


def test_an_arrival_that_the_webhook_does_not_take_is_seen_and_explained(here: StatusHarness, hook: Hook) -> None:
    hook.answers = [503]

    async def scenario() -> tuple[dict[str, Any], ...]:
        async with telling(here, hook) as leader:
            await migrate(here)
            await arrive(here)
            await leader.turn()
            refused, untold = leader.notices.view(), leader.notices.about("holdfast-w1-eth0")[0]
            here.clock.advance(seconds(1))
            await leader.turn()
            return refused, untold, leader.notices.view(), leader.notices.about("holdfast-w1-eth0")[0]

    refused, untold, taken, told = asyncio.run(scenario())
    assert refused == {
        "under_way": 1,
        "notified": 0,
        "waiting": [{"endpoint": "holdfast-w1-eth0", "error": "the webhook answered 503"}],
        "failing": 1,
    }
    assert untold == {"from": "r1", "to": "r2", "notified": None, "error": "the webhook answered 503", "held": None}
    assert (taken["notified"], taken["failing"]) == (1, 0)
    assert (told["notified"], told["error"]) == ("2026-01-01T00:16:41+00:00", None)


def test_a_migration_with_a_uid_is_the_same_however_often_it_is_written(here: StatusHarness, hook: Hook) -> None:
    metadata = msgspec.structs.replace(MOVE.metadata, uid="7d3c")
    move = MIGRATION.encode(msgspec.structs.replace(MOVE, metadata=metadata))

    async def scenario() -> None:
        async with telling(here, hook) as leader:
            await here.world.put(KEY, move)
            await arrive(here)
            await leader.turn()
            await here.world.put(KEY, move)
            await arrive(here)
            await leader.turn()

    asyncio.run(scenario())
    assert len(hook.heard) == 1
