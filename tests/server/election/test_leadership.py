"""Leadership as workers see it: how long it holds, and what happens to their work when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

import pytest

from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Instant, seconds
from holdfast.model.control.leader import LEADER
from holdfast.reconcile import Change, Closed, Gate, Op, Owned, one_kind, plan
from holdfast.server.election.leadership import (
    OPENS,
    LeaderGate,
    LeaderReason,
    Leadership,
    LeadershipCell,
    Leading,
    NotLeading,
    TermEnded,
    leadership_verdict,
    while_leading,
)
from holdfast.store.api import Deposed
from holdfast.testing import World, simulate
from tests.sim.servers import Slot

NOW = Instant(1_000_000_000_000)
KEY = LEADER.key(Region("r"), "leader")
LEADS = LeadershipCell("leading", term=7, until=NOW + seconds(10), work_until=NOW + seconds(15), leader="a", since=NOW)


def reason(said: Leading | NotLeading) -> LeaderReason:
    assert isinstance(said, NotLeading)
    return said.reason


def test_a_fresh_leadership_on_the_board_is_believed() -> None:
    assert leadership_verdict(LEADS, [None, TermEnded()], NOW) == Leading(7, NOW + seconds(10), NOW + seconds(15))


def test_nothing_on_the_board_is_not_leading() -> None:
    assert reason(leadership_verdict(None, [], NOW)) is LeaderReason.NOT_LEADER


def test_a_follower_names_who_leads() -> None:
    said = leadership_verdict(LeadershipCell("following", leader="b", since=NOW), [], NOW)
    assert said == NotLeading(LeaderReason.NOT_LEADER, NOW, "b")


def test_C1_belief_ends_with_the_deadline_to_the_nanosecond() -> None:
    assert isinstance(leadership_verdict(LEADS, [], Instant(LEADS.until.ns - 1)), Leading)
    assert leadership_verdict(LEADS, [], LEADS.until) == NotLeading(LeaderReason.STALE, LEADS.until, "term 7")


def test_a_term_that_any_worker_found_to_be_over_is_deposed_for_all() -> None:
    assert reason(leadership_verdict(LEADS, [None, TermEnded(7)], NOW)) is LeaderReason.DEPOSED


@pytest.mark.parametrize("term", [3, 5_000])
def test_another_term_that_ended_deposes_no_leader_even_one_from_before_a_restore(term: int) -> None:
    assert isinstance(leadership_verdict(LEADS, [TermEnded(term)], NOW), Leading)


def test_a_paused_server_has_its_own_reason() -> None:
    assert reason(leadership_verdict(LeadershipCell("resting", why="paused"), [], NOW)) is LeaderReason.PAUSED


@pytest.mark.parametrize(
    ("shown", "found", "why"),
    [
        (LeadershipCell("following", leader="b"), TermEnded(), LeaderReason.NOT_LEADER),
        (LeadershipCell("leading", term=7, until=NOW), TermEnded(), LeaderReason.STALE),
        (LEADS, TermEnded(7), LeaderReason.DEPOSED),
        (LeadershipCell("resting", why="paused"), TermEnded(), LeaderReason.PAUSED),
    ],
)
def test_the_gate_has_a_reason_and_how_to_release_it(
    shown: LeadershipCell, found: TermEnded, why: LeaderReason
) -> None:
    gate = _gate(shown, found)
    assert not gate.is_open(NOW)
    closed = gate.judge(_change(), {}, 0, NOW)
    assert isinstance(closed, Closed)
    assert (closed.gate, closed.reason, closed.opens) == ("leader", why, OPENS[why])


def test_the_gate_is_open_while_leading() -> None:
    gate = _gate(LEADS, TermEnded())
    assert gate.is_open(NOW)
    assert gate.judge(_change(), {}, 0, NOW) is None


def test_a_plan_holds_what_the_gate_holds() -> None:
    gates: list[Gate[str, str]] = [_gate(LeadershipCell("following", leader="b"), TermEnded())]
    assert not plan([_change()], gates, {}, NOW, one_kind("thing")).ready


def test_every_reason_has_something_that_opens_it() -> None:
    assert set(OPENS) == set(LeaderReason)


class _Standing:
    """A clock that shows one moment."""

    def now(self) -> Instant:
        return NOW

    def wall(self) -> NoReturn:
        raise AssertionError("leadership has no business with the time of day")


def _gate(shown: LeadershipCell, found: TermEnded) -> LeaderGate:
    board, mine = Slot[LeadershipCell](), Slot[TermEnded]()
    board.write(shown)
    mine.write(found)
    return LeaderGate(Leadership(board, mine, [mine], _Standing()))


def _change() -> Change[str, str]:
    return Change(Op.CREATE, "k", None, Owned("v", "s", 1))


class Bench:
    """A worker's process with a board, in virtual time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.node = world.node("a")
        self.board, self.found = Slot[LeadershipCell](), Slot[TermEnded]()
        self.leadership = Leadership(self.board, self.found, [self.found], self.node.clock)
        self.stopping = asyncio.Event()
        self.died: list[str] = []

    def lead(self, term: int = 7, lasting: float = 10) -> None:
        until = self.node.clock.now() + seconds(lasting)
        self.board.write(LeadershipCell("leading", term=term, until=until, work_until=until + seconds(5)))

    def lose(self) -> None:
        self.board.write(LeadershipCell("following"))

    def start(self, work: Callable[[Leading], Awaitable[None]]) -> asyncio.Task[None]:
        return self.node.run(while_leading(self.leadership, work, self.stopping, die=self._die), may_fail=True)

    def _die(self, why: str) -> NoReturn:
        self.died.append(why)
        raise SystemError(why)


def bench(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def scenario(world: World) -> None:
        await story(Bench(world))

    simulate(1, scenario)


def test_confirm_agrees_while_the_store_does() -> None:
    async def story(b: Bench) -> None:
        store = b.world.connect("w")
        b.lead(term=await store.put(KEY, b""))
        assert isinstance(await b.leadership.confirm(store, KEY), Leading)
        assert b.found.read() is None

    bench(story)


def test_C2_confirm_tells_the_board_when_the_store_disagrees() -> None:
    async def story(b: Bench) -> None:
        store = b.world.connect("w")
        b.lead(term=await store.put(KEY, b""))
        await store.delete(KEY)
        assert reason(await b.leadership.confirm(store, KEY)) is LeaderReason.DEPOSED
        assert reason(b.leadership.check()) is LeaderReason.DEPOSED

    bench(story)


def test_confirm_does_not_ask_the_store_when_the_board_shows_another_leader() -> None:
    async def story(b: Bench) -> None:
        store = b.world.connect("w")
        store.link.sever()
        assert reason(await b.leadership.confirm(store, KEY)) is LeaderReason.NOT_LEADER

    bench(story)


def test_work_runs_while_leading_and_is_cancelled_when_leadership_is_lost() -> None:
    async def story(b: Bench) -> None:
        log: list[str] = []

        async def work(said: Leading) -> None:
            log.append(f"begins {said.term}")
            try:
                await asyncio.sleep(1_000)
            finally:
                log.append(f"ends {said.term}")

        b.start(work)
        await asyncio.sleep(1)
        assert log == []
        b.lead(7)
        await asyncio.sleep(1)
        b.lose()
        await asyncio.sleep(0.3)
        assert log == ["begins 7", "ends 7"]

    bench(story)


def test_C1_work_is_cancelled_at_the_deadline_without_any_notice() -> None:
    async def story(b: Bench) -> None:
        ended: list[float] = []

        async def work(said: Leading) -> None:
            try:
                await asyncio.sleep(1_000)
            finally:
                ended.append(b.world.time)

        b.lead(lasting=10)
        b.start(work)
        await asyncio.sleep(20)
        assert ended == [pytest.approx(10, abs=0.3)]

    bench(story)


def test_a_new_term_begins_the_work_anew() -> None:
    async def story(b: Bench) -> None:
        terms: list[int] = []

        async def work(said: Leading) -> None:
            terms.append(said.term)
            await asyncio.sleep(1_000)

        b.lead(7)
        b.start(work)
        await asyncio.sleep(1)
        b.lead(8)
        await asyncio.sleep(1)
        assert terms == [7, 8]

    bench(story)


def test_work_that_does_not_stop_before_the_lease_is_over_ends_the_process() -> None:
    async def story(b: Bench) -> None:
        async def work(said: Leading) -> None:
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                await asyncio.sleep(1_000)

        b.lead(lasting=10)
        task = b.start(work)
        await asyncio.sleep(14.5)
        assert b.died == []
        await asyncio.sleep(1)
        assert b.died == ["leader work of term 7 did not stop before its lease ran out"]
        assert isinstance(task.exception(), SystemError)

    bench(story)


def test_work_whose_write_was_refused_deposes_its_term_and_is_not_an_error() -> None:
    async def story(b: Bench) -> None:
        async def work(said: Leading) -> None:
            raise Deposed("term 7 is over")

        b.lead(7)
        task = b.start(work)
        await asyncio.sleep(1)
        assert b.found.read() == TermEnded(7)
        assert not task.done()

    bench(story)


def test_work_that_fails_fails_the_worker() -> None:
    async def story(b: Bench) -> None:
        async def work(said: Leading) -> None:
            raise ValueError("bad day")

        b.lead(7)
        task = b.start(work)
        await asyncio.sleep(1)
        assert isinstance(task.exception(), ValueError)

    bench(story)


def test_a_stop_cancels_the_work_and_returns() -> None:
    async def story(b: Bench) -> None:
        ended: list[bool] = []

        async def work(said: Leading) -> None:
            try:
                await asyncio.sleep(1_000)
            finally:
                ended.append(True)

        b.lead(7)
        task = b.start(work)
        await asyncio.sleep(1)
        b.stopping.set()
        await asyncio.wait_for(task, 1)
        assert ended == [True]

    bench(story)


def test_cancelling_the_worker_cancels_its_work() -> None:
    async def story(b: Bench) -> None:
        ended: list[bool] = []

        async def work(said: Leading) -> None:
            try:
                await asyncio.sleep(1_000)
            finally:
                ended.append(True)

        b.lead(7)
        task = b.start(work)
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(0.1)
        assert ended == [True]

    bench(story)


def test_never_is_no_deadline_to_believe_in() -> None:
    assert reason(leadership_verdict(LeadershipCell("leading", term=7, until=NEVER), [], NOW)) is LeaderReason.STALE
