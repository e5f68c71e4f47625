"""Endpoints' reports into the inventory: which reports count, what follows from none, and what a takeover writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.api import Fence
from holdfast.inventory.changes import WantedObject
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.model.fleet.observed import EndpointSeen, ObservedState
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, endpoint_name, host
from tests.server.harness import StatusHarness, Working, status_harness, status_key

Scene = Callable[[Working[Any, EndpointSeen]], Awaitable[None]]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        made.editor.change([host(1), host(2), endpoint(1), endpoint(2)], who="alice")
        yield made


def play(here: StatusHarness, scene: Scene, *, alive: tuple[str, ...] = ("r1", "r2")) -> dict[bytes, EndpointSeen]:
    """Both hosts report; the scene is played with a leader that has compared everything once."""

    async def scenario() -> dict[bytes, EndpointSeen]:
        for one in alive:
            await here.report(one)
        async with here.endpoints() as working:
            await working.turn()
            await scene(working)
            await working.turn()
            return dict(working.memory)

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("state", "word"), [(EndpointState.UP, "ACTIVE"), (EndpointState.DOWN, "DOWN"), (EndpointState.ERROR, "ERROR")]
)
def test_the_inventory_has_the_state_that_the_agent_reports(
    here: StatusHarness, state: EndpointState, word: str
) -> None:
    async def scene(_working: object) -> None:
        await here.say(1, state)

    assert play(here, scene)[status_key(1)] == EndpointSeen(ObservedState(word))
    assert here.rows("endpoint")[status_key(1)] == b'{"status":"%b"}' % word.encode()


@pytest.mark.parametrize("whole", [False, True], ids=["looked at alone", "in a pass"])
def test_an_endpoint_that_was_compared_between_two_changes_is_compared_again(here: StatusHarness, whole: bool) -> None:
    """Up, down, up, down: received as down, compared when it was up again, and then it is down once more."""

    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        await here.say(1, EndpointState.DOWN)
        await working.receive()
        await here.say(1, EndpointState.UP)
        await working.fill_mirror()
        if whole:
            working.term.reconciler.dirty.mark_all()
        await working.term.reconciler.turn()
        assert working.memory[status_key(1)] == EndpointSeen(ObservedState.ACTIVE)
        await here.say(1, EndpointState.DOWN)

    assert play(here, scene)[status_key(1)] == EndpointSeen(ObservedState.DOWN)


def test_a_list_that_comes_between_two_pages_of_a_pass_is_seen(
    here: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.status.source.PAGE", 1)
    numbers = range(1, 60)
    here.editor.change([endpoint(number) for number in numbers], who="alice")

    async def scene(working: Working[Any, EndpointSeen]) -> None:
        mirror, link = working.term.mirror, working.client.link
        for number in numbers:
            await here.say(number, EndpointState.UP)
        await working.turn()
        link.mute_watches()
        for number in numbers:
            await here.say(number, EndpointState.DOWN)
        link.lose_continuity()
        working.term.reconciler.dirty.mark_all()
        passing = asyncio.create_task(working.term.reconciler.turn())
        while mirror.lists == 1:  # noqa: ASYNC110 -- every turn of the loop counts here
            await asyncio.sleep(0)
        assert not passing.done()
        await passing

    rows = play(here, scene)
    assert {rows[status_key(number)] for number in numbers} == {EndpointSeen(ObservedState.DOWN)}


@pytest.mark.parametrize(
    "way", [[EndpointState.DOWN], [EndpointState.UP, EndpointState.DOWN]], ids=["at once", "by way of another"]
)
def test_an_endpoint_that_was_compared_while_unreadable_is_compared_again(
    here: StatusHarness, way: list[EndpointState]
) -> None:
    """The value that is readable again equals the one before, which was never compared."""

    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        await here.say(1, EndpointState.DOWN)
        await here.world.put(status_key(1), b"[]")
        await working.receive()
        await working.term.reconciler.turn()
        assert working.memory[status_key(1)] == EndpointSeen(ObservedState.ACTIVE)
        for state in way:
            await here.say(1, state)
        await working.turn()

    assert play(here, scene)[status_key(1)] == EndpointSeen(ObservedState.DOWN)


def test_an_agent_that_was_compared_between_two_losses_is_lost(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        await here.silence("r1")
        await working.receive()
        await here.report("r1")
        await working.fill_mirror()
        await working.term.reconciler.turn()
        assert working.memory[status_key(1)] == EndpointSeen(ObservedState.ACTIVE)
        await here.silence("r1")

    assert play(here, scene)[status_key(1)] == EndpointSeen(ObservedState.ACTIVE, known=False)


def test_an_endpoint_that_a_live_agent_does_not_report_is_down(here: StatusHarness) -> None:
    async def scene(_working: object) -> None:
        return None

    assert play(here, scene)[status_key(1)] == EndpointSeen(ObservedState.DOWN)


def test_a_status_that_a_live_agent_removes_is_down(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        await here.world.delete(status_key(1))

    assert play(here, scene)[status_key(1)] == EndpointSeen(ObservedState.DOWN)


def test_while_its_agent_is_not_alive_the_last_value_is_kept_and_unknown(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        await here.silence("r1")
        await working.turn()
        await here.world.delete(status_key(1))

    seen = play(here, scene)[status_key(1)]
    assert seen == EndpointSeen(ObservedState.ACTIVE, known=False)
    assert seen.shown == "unknown"


def test_when_its_agent_is_back_the_status_is_known_again(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await here.silence("r1")
        await working.turn()
        await here.report("r1")

    assert play(here, scene)[status_key(1)] == EndpointSeen(ObservedState.ACTIVE)


HOSTS = range(1, 21)


async def lose_half(here: StatusHarness, working: Working[Any, EndpointSeen]) -> None:
    for number in HOSTS[:10]:
        await here.silence(f"r{number}")
    await working.turn()


def fill(here: StatusHarness) -> None:
    here.editor.change([*map(host, HOSTS[2:]), *(endpoint(n, on=f"r{n}") for n in HOSTS[2:])], who="alice")


def unknown(working: Working[Any, EndpointSeen]) -> int:
    return sum(not seen.known for seen in working.memory.values())


def test_where_nothing_else_changes_agents_that_go_on_reporting_end_a_hold(here: StatusHarness) -> None:
    async def scenario() -> list[int]:
        fill(here)
        for number in HOSTS:
            await here.report(f"r{number}")
        async with here.endpoints() as working:
            await working.turn()
            await lose_half(here, working)
            here.clock.advance(seconds(31))
            await working.turn()
            unproven = unknown(working)
            await here.report("r20")
            for _ in range(3):
                await working.turn()
                here.clock.advance(seconds(2))
            return [unproven, unknown(working)]

    assert asyncio.run(scenario()) == [0, 10]


def test_agents_that_a_list_shows_have_not_reported_since_others_vanished(here: StatusHarness) -> None:
    """The server was restarted while the store lost half of the agents; what is left of them may be as dead."""

    async def scenario() -> list[int]:
        fill(here)
        for number in HOSTS:
            await here.report(f"r{number}")
        async with here.endpoints() as working:
            await working.turn()
        for number in HOSTS[:10]:
            await here.silence(f"r{number}")
        async with here.endpoints() as working:
            await working.term.reconciler.turn()
            for _ in range(3):
                await working.turn()
                here.clock.advance(seconds(31))
            return [unknown(working), len(working.term.mass_loss.held)]

    assert asyncio.run(scenario()) == [0, 9]


@fault(
    "C24",
    without="holdfast.server.status.rules.endpoints:EndpointRules.bound",
    by="tests.server.status.without_protection:bound_anywhere",
    sees=(AssertionError, r"play\(here, scene\) == \{ status_key\(1\)"),
)
def test_C24_only_the_host_that_an_endpoint_is_on_has_a_word(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        await here.say(1, EndpointState.ERROR, on="r2")

    assert play(here, scene) == {
        status_key(1): EndpointSeen(ObservedState.ACTIVE),
        status_key(2): EndpointSeen(ObservedState.DOWN),
    }


def test_a_report_from_the_wrong_host_is_counted(here: StatusHarness) -> None:
    texts: list[str] = []

    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.ERROR, on="r2")
        await working.turn()
        texts.append(working.term.context.metrics.text())

    play(here, scene)
    assert "holdfast_stray_statuses_total 1.0" in texts[0]


@fault(
    "C31",
    without="holdfast.server.status.inventory_rows:EndpointRows.follow",
    by="tests.server.status.without_protection:deaf",
    sees=(KeyError, r"play\(here, scene\)\[status_key\(7\)\] =="),
)
def test_C31_an_up_that_came_before_the_binding_counts_once_the_binding_is_there(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(7, EndpointState.UP)
        await working.turn()
        here.editor.change([endpoint(7)], who="alice")
        working.term.feed.inventory_changed()

    assert play(here, scene)[status_key(7)] == EndpointSeen(ObservedState.ACTIVE)


def test_a_change_that_was_not_announced_is_found_by_the_audit(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(7, EndpointState.UP)
        await working.turn()
        here.editor.change([endpoint(7)], who="alice")
        here.clock.advance(seconds(301))

    assert play(here, scene)[status_key(7)] == EndpointSeen(ObservedState.ACTIVE)


def test_a_row_that_was_edited_by_hand_is_repaired_by_the_audit(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        fence = working.term.target._fence
        here.observed.write(fence, "endpoint", {b'{"status":"ERROR"}': [status_key(1)]}, [], here.clock.wall())
        here.clock.advance(seconds(301))

    play(here, scene)
    assert here.rows("endpoint")[status_key(1)] == b'{"status":"ACTIVE"}'


def test_an_endpoint_that_moves_is_known_from_its_new_host_only(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        here.editor.change([endpoint(1, on="r2")], who="alice")
        working.term.feed.inventory_changed()

    seen = play(here, scene)
    assert status_key(1) not in seen
    assert seen[status_key(1, on="r2")] == EndpointSeen(ObservedState.DOWN)


def test_an_endpoint_that_is_deleted_is_forgotten(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
        working.term.feed.inventory_changed()

    assert list(play(here, scene)) == [status_key(2)]


def test_a_value_that_cannot_be_read_leaves_the_last_one_in_place(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        await here.world.put(status_key(1), b"[]")
        await here.say(2, EndpointState.UP)

    assert play(here, scene) == {
        status_key(1): EndpointSeen(ObservedState.ACTIVE),
        status_key(2): EndpointSeen(ObservedState.ACTIVE),
    }


def test_the_next_leader_keeps_the_row_of_an_unreadable_value(here: StatusHarness) -> None:
    """Each has seen another part of the past, and neither knows better."""

    async def scenario() -> list[bytes]:
        await here.report("r1")
        async with here.endpoints() as heir:
            await here.say(1, EndpointState.UP)
            await heir.receive()
            await here.world.put(status_key(1), b"[]")
            async with here.endpoints() as leader:
                await leader.turn()
            said = here.rows("endpoint")[status_key(1)]
            fence = Fence(REGION.segment, 1, leader.term.reconciler.place.term())
            heir.term.target._fence = fence
            await heir.turn()
            return [said, here.rows("endpoint")[status_key(1)]]

    said, still = asyncio.run(scenario())
    assert said == still == b"{}"


@fault(
    "C15",
    without="holdfast.server.status.term:same",
    returns=False,
    sees=(AssertionError, r"writes\[0\] == writes\[1\]"),
)
def test_C15_a_second_list_of_the_same_writes_nothing(here: StatusHarness) -> None:
    writes: list[int] = []

    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await working.turn()
        writes.append(working.term.target.writes)
        working.client.link.lose_continuity()
        await working.turn()
        working.term.reconciler.dirty.mark_all()
        await working.turn()
        writes.append(working.term.target.writes)

    play(here, scene)
    assert writes[0] == writes[1]


def test_deletions_during_a_lost_watch_are_found(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.UP)
        await here.say(2, EndpointState.UP)
        await working.turn()
        working.client.link.lose_continuity()
        await here.world.delete(status_key(1))

    assert play(here, scene) == {
        status_key(1): EndpointSeen(ObservedState.DOWN),
        status_key(2): EndpointSeen(ObservedState.ACTIVE),
    }


def test_endpoints_on_hosts_without_an_agent_are_listed(here: StatusHarness) -> None:
    lonely: list[object] = []

    async def scene(working: Working[Any, EndpointSeen]) -> None:
        lonely.append(dict(working.term.rules.orphans()))

    play(here, scene, alive=("r2",))
    assert lonely == [{"r1": 2}]


@fault("C16", without="holdfast.server.status.term:same", returns=False, sees=(AssertionError, "writes == 7"))
def test_C16_a_takeover_writes_what_differs_in_a_handful_of_calls(here: StatusHarness) -> None:
    here.editor.change([endpoint(number) for number in range(10, 2_000)], who="alice")

    async def scenario() -> tuple[int, int]:
        await here.report("r1")
        for number in range(10, 2_000):
            await here.say(number, EndpointState.UP)
        async with here.endpoints() as working:
            await working.turn()
        for number in range(10, 17):
            await here.say(number, EndpointState.ERROR)
        async with here.endpoints() as working:
            await working.turn()
            return working.term.target.writes, working.calls.made

    writes, calls = asyncio.run(scenario())
    assert writes == 7
    assert calls <= 6


def test_the_decision_log_names_an_endpoint_as_the_syncer_does(here: StatusHarness) -> None:
    async def scene(working: Working[Any, EndpointSeen]) -> None:
        await here.say(1, EndpointState.ERROR)

    play(here, scene)
    (told,) = [
        one for one in here.decision_records() if one.key == "endpoint r1-holdfast-w1-eth0" and one.op == "replace"
    ]
    assert told.sentence.startswith("replaced (DOWN → ERROR): now wanted by reports at revision ")
