"""The one loop: full and partial passes, re-checked deletes, gates that open, dependencies that are away."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config.sections.pulse import PulseSettings as Bounds
from holdfast.model.base.time import NEVER, Duration, Instant, seconds
from holdfast.reconcile import Change, Op, Outcome, OutOfOrder, Owned, Pause, Synced
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.pulse import PulseVerdict, WorkerSigns, judge
from holdfast.runtime.reconciler.place import LoopTimings
from holdfast.testing.fakes.target import MemorySource, MemoryTarget
from tests.runtime.harness import HandClock, Workshop, numbered, owned, patient, pulse_backlog, until

TABLES = st.dictionaries(st.integers(0, 30), st.sampled_from(["a", "b"]))


def runs(scenario: Callable[[Path], Coroutine[object, object, None]]) -> Callable[[Path], None]:
    """A test that is a coroutine."""

    def test(tmp_path: Path) -> None:
        asyncio.run(scenario(tmp_path))

    return test


# Full and partial passes


@settings(patient, max_examples=60)
@given(want=TABLES, have=TABLES, page=st.integers(1, 9))
def test_a_full_pass_by_pages_makes_what_is_there_what_is_wanted(
    tmp_path: Path, want: dict[int, str], have: dict[int, str], page: int
) -> None:
    shop = Workshop(tmp_path, want, have, page=page, braked=False)
    asyncio.run(shop.turn())
    assert shop.there == want
    assert shop.reconciler.backlog() == 0
    assert {change.key for change in shop.target.calls} == {
        key for key in want.keys() | have.keys() if want.get(key) != have.get(key)
    }


@runs
async def test_a_full_pass_over_equal_tables_writes_nothing(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(50), numbered(50), page=7)
    await shop.turn()
    assert (shop.target.calls, shop.records(), shop.state) == ([], [], "ok")


@runs
async def test_deletes_of_a_full_pass_come_after_the_creates_of_every_page(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {5: "a", 25: "b"}, {1: "x", 21: "y", 22: "z", 23: "q"}, page=1, braked=False)
    await shop.turn()
    assert [change.op for change in shop.target.calls] == [Op.CREATE] * 2 + [Op.DELETE] * 4


@runs
async def test_a_partial_pass_looks_at_the_marked_keys_only(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(5), numbered(5))
    await shop.turn()
    shop.want({**numbered(5), 1: "new", 2: "new too"})
    await shop.look_at(1)
    assert (shop.there[1], shop.there[2]) == ("new", "v2")


@runs
async def test_marks_coalesce_to_one_item_per_object(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(3), numbered(3))
    await shop.turn()
    for value in range(1_000):
        shop.want({**numbered(3), 1: f"value {value}"})
        shop.reconciler.dirty.mark([1, 2])
    assert pulse_backlog(shop) == 2
    await shop.turn()
    assert [change.new and change.new.value for change in shop.target.calls] == ["value 999"]
    assert pulse_backlog(shop) == 0


@runs
async def test_the_audit_finds_what_nobody_announced(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(5), numbered(5))
    await shop.turn()
    shop.target.objects[3] = Owned("tampered", "db", 1)
    await shop.turn(after=299)
    assert shop.there[3] == "tampered"
    await shop.turn(after=2)
    assert shop.there == numbered(5)


@runs
async def test_an_audit_that_never_finishes_is_overdue_after_three_intervals_also_the_first(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(5), {})
    shop.source.away = "connection refused"
    verdicts = []
    for _ in range(4):
        await shop.turn(after=299)
        now = shop.clock.now()
        verdicts.append(judge(WorkerSigns(now, shop.vitals.pulse(1, now)), Bounds(), now))
    assert verdicts == [PulseVerdict.WAITING] * 3 + [PulseVerdict.OVERDUE]
    shop.source.away = None
    await shop.turn()
    now = shop.clock.now()
    assert judge(WorkerSigns(now, shop.vitals.pulse(1, now)), Bounds(), now) is PulseVerdict.HEALTHY


class Laborious(MemoryTarget[int, str]):
    """Every batch takes its time; before it begins, the supervisor looks."""

    def __init__(self, objects: Mapping[int, Owned[str]], shop: Workshop, takes: float) -> None:
        super().__init__(objects)
        self.verdicts: list[PulseVerdict] = []
        self._shop = shop
        self._takes = takes

    async def apply(self, ready: Sequence[Change[int, str]]) -> Sequence[Outcome[int, str]]:
        now = self._shop.clock.now()
        self.verdicts.append(judge(WorkerSigns(Instant(1), self._shop.vitals.pulse(1, now)), Bounds(), now))
        self._shop.clock.move(self._takes)
        return await super().apply(ready)


@runs
async def test_a_plan_of_many_slow_batches_is_not_taken_for_a_stall(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {}, {}, pace=LoopTimings(batch=2), braked=False)
    shop.place.target = target = Laborious(owned(numbered(20)), shop, takes=20)
    await shop.look_at_all()
    assert target.objects == {}
    assert target.verdicts == [PulseVerdict.HEALTHY] * 10


# Deletes


class Reborn(MemorySource[int, str]):
    """Wants the keys in `reborn` again as soon as their absence has been compared."""

    def __init__(self, objects: Mapping[int, Owned[str]], reborn: Mapping[int, Owned[str]]) -> None:
        super().__init__(objects)
        self._reborn = reborn

    async def get(self, keys: Collection[int]) -> Mapping[int, Owned[str]]:
        self.objects |= self._reborn
        return await super().get(keys)


@runs
async def test_a_delete_is_not_sent_when_the_object_is_wanted_again_meanwhile(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {}, numbered(8))
    shop.place.source = Reborn(owned({key: f"v{key}" for key in range(6)}), owned({6: "v6"}))
    await shop.turn()
    assert [change.key for change in shop.target.calls] == [7]
    await shop.turn()
    assert (sorted(shop.there), shop.reconciler.backlog()) == ([0, 1, 2, 3, 4, 5, 6], 0)


@runs
async def test_an_object_that_came_back_with_another_value_is_replaced_not_deleted(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {}, numbered(8))
    shop.place.source = Reborn(owned({key: f"v{key}" for key in range(7)}), owned({7: "new owner"}))
    await shop.turn(times=2)
    assert [change.op for change in shop.target.calls] == [Op.REPLACE]
    assert shop.there[7] == "new owner"


@runs
async def test_nothing_is_pruned_before_its_source_has_delivered_a_complete_list(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {1: "new"}, numbered(2))
    shop.sync.note_source("db", Synced(shop.clock.now()))
    await shop.turn()
    assert (shop.there, shop.state) == ({0: "v0", 1: "new"}, "held: sync")
    shop.sync.note_source("db", Synced(shop.clock.now(), 7))
    await shop.turn(after=2, times=2)
    assert (shop.there, shop.state) == ({1: "new"}, "ok")


# Gates that hold and open


@runs
async def test_a_pause_holds_everything_and_what_it_held_is_released_when_it_ends(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {**numbered(9), 5: "new", 20: "created"}, numbered(10))
    shop.intent.pause = Pause("ada", "maintenance", shop.clock.now())
    await shop.turn()
    assert (shop.target.calls, shop.state, pulse_backlog(shop)) == ([], "held: intent", 3)
    shop.intent.pause = None
    await shop.turn(after=1.1, times=2)
    assert ([change.op for change in shop.target.calls], shop.state) == ([Op.DELETE, Op.REPLACE, Op.CREATE], "ok")


@runs
async def test_a_pause_that_runs_out_needs_nobody(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(3), {})
    shop.intent.pause = Pause("ada", "tea", shop.clock.now(), until=shop.clock.now() + seconds(30))
    await shop.turn()
    await shop.turn(after=29, times=1)
    assert shop.there == {}
    await shop.turn(after=1.1, times=2)
    assert shop.there == numbered(3)


@runs
async def test_a_held_change_keeps_its_age(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(3), {})
    shop.intent.pause = Pause("ada", "tea", shop.clock.now())
    began = shop.clock.now()
    await shop.turn()
    await shop.turn(after=100, times=5)
    assert shop.reconciler.oldest() == began
    assert [one.since_s for one in shop.reconciler.outstanding()] == [500.0] * 3


@runs
async def test_while_the_brake_holds_deletes_creates_and_replaces_flow(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {0: "new", 50: "created"}, numbered(12))
    await shop.turn()
    assert [change.op for change in shop.target.calls] == [Op.REPLACE, Op.CREATE]
    assert (len(shop.there), shop.state) == (13, "held: brake")


@runs
async def test_the_brake_opens_by_a_fresh_list_a_minute_later_that_agrees(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(75), numbered(100))
    await shop.turn()
    assert shop.state == "held: brake"
    await shop.turn(after=1.0, times=58)
    assert (len(shop.there), shop.source.refreshes) == (100, 0)
    await shop.turn(after=1.0, times=4)
    assert (len(shop.there), shop.source.refreshes, shop.state) == (75, 1, "ok")


@runs
async def test_a_brake_that_lingers_asks_for_its_list_that_much_later(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(75), numbered(100), pace=LoopTimings(linger=seconds(30)))
    await shop.turn()
    await shop.turn(after=1.0, times=88)
    assert (len(shop.there), shop.source.refreshes) == (100, 0)
    await shop.turn(after=1.0, times=4)
    assert (len(shop.there), shop.source.refreshes, shop.state) == (75, 1, "ok")


@runs
async def test_a_list_that_cannot_be_had_holds_up_nothing_but_what_the_brake_holds(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(75), numbered(100))
    await shop.turn()
    shop.source.unlisted = "it does not answer"
    await shop.turn(after=1.0, times=90)
    shop.want({**numbered(75), 200: "created"})
    shop.reconciler.dirty.mark([200])
    await shop.turn(after=1.0)
    assert (len(shop.there), shop.state) == (101, "held: brake")
    shop.source.unlisted = None
    await shop.turn(after=1.0, times=8)
    assert (len(shop.there), shop.state) == (76, "ok")


@runs
async def test_a_fresh_list_that_disagrees_lets_only_go_what_is_still_unwanted(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(75), numbered(100))
    await shop.turn()
    await shop.turn(after=30)
    shop.want(numbered(98))
    await shop.turn(after=31, times=3)
    assert len(shop.there) == 98


@runs
async def test_a_brake_for_almost_everything_waits_for_an_operator_and_asks_for_one_list_only(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {}, numbered(100))
    await shop.turn()
    await shop.turn(after=10, times=100)
    assert (len(shop.there), shop.state) == (100, "held: brake")
    assert shop.source.refreshes == 1
    assert shop.brake is not None
    assert shop.brake.allow() == 100
    await shop.turn(after=1.1, times=2)
    assert (shop.there, shop.state) == ({}, "ok")


@runs
async def test_a_fresh_list_that_cannot_be_had_opens_nothing(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(75), numbered(100))
    await shop.turn()
    shop.source.away = "no leader"
    await shop.turn(after=61, times=3)
    assert (len(shop.there), shop.state) == (100, "held: brake")
    shop.source.away = None
    await shop.turn(after=5, times=3)
    assert len(shop.there) == 75


@runs
async def test_single_deletes_are_counted_together_over_a_minute(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(100), numbered(100))
    await shop.turn()
    for key in range(30):
        del shop.source.objects[key]
        await shop.look_at(key)
    assert len(shop.there) == 80


@runs
async def test_what_the_place_created_itself_counts_as_there_for_the_brake(tmp_path: Path) -> None:
    """The first pass creates all twelve; five of twelve may then go without an operator, by partial passes too."""
    shop = Workshop(tmp_path, numbered(12), {}, page=5)
    await shop.turn()
    shop.want(numbered(7))
    await shop.look_at(7, 8, 9, 10, 11)
    assert (shop.there, shop.state) == (numbered(7), "ok")


@runs
async def test_a_hold_of_34812_deletes_stays_cheap(tmp_path: Path) -> None:
    """A second of the loop, with a real clock, costs a small part of a second, although all of it is looked at."""
    shop = Workshop(tmp_path, {}, numbered(34_812), clock=_RealTime())
    await shop.turn()
    assert shop.reconciler.held() == {"brake": 34_812}
    stopping, spent, began = asyncio.Event(), time.process_time(), time.monotonic()
    task = asyncio.create_task(shop.reconciler.run(stopping))
    for _ in range(5):
        await asyncio.sleep(0.5)
        shop.vitals.pulse(1, shop.clock.now())
    stopping.set()
    await task
    share = (time.process_time() - spent) / (time.monotonic() - began)
    assert share < 0.25
    assert len(shop.records()) == 34_812


class _RealTime(HandClock):
    def now(self) -> Instant:
        return SystemClock().now()


# Dependencies that are away, outcomes that fail


@runs
async def test_a_source_that_is_away_is_waited_for_and_nothing_is_lost(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(5), {})
    shop.source.away = "connection refused"
    await shop.turn()
    assert (shop.there, shop.state) == ({}, "waiting: database")
    assert (pulse_backlog(shop) or 0) > 0
    shop.source.away = None
    await shop.turn()
    assert (shop.there, shop.state) == (numbered(5), "ok")


@runs
async def test_marks_survive_a_target_that_is_away_with_their_age(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(5), numbered(5))
    await shop.turn()
    shop.want({**numbered(5), 2: "new"})
    marked = shop.clock.now()
    shop.target.away = "netlink"
    await shop.look_at(2)
    await shop.turn(after=3, times=5)
    assert (shop.state, pulse_backlog(shop), shop.reconciler.oldest()) == ("waiting: dataplane", 1, marked)
    shop.target.away = None
    await shop.turn()
    assert (shop.there[2], pulse_backlog(shop)) == ("new", 0)


@runs
async def test_failing_attempts_are_signs_of_life(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(5), {})
    shop.source.away = "connection refused"
    await shop.turn(after=7, times=20)
    pulse = shop.vitals.pulse(1, shop.clock.now())
    assert (pulse.attempt, pulse.success) == (shop.clock.now(), type(pulse.success)(0))


class Stopping(MemoryTarget[int, str]):
    """The first change of every call finds that we are deposed."""

    async def apply(self, ready: Sequence[Change[int, str]]) -> Sequence[Outcome[int, str]]:
        return [Outcome(change, "deposed", stop=True) for change in ready]


@runs
async def test_a_stop_outcome_ends_the_turn_and_keeps_everything_for_the_next(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(6), {}, pace=LoopTimings(batch=2))
    good, shop.place.target = shop.place.target, Stopping()
    await shop.turn()
    assert shop.state == "waiting: deposed"
    assert [one.key for one in shop.records() if one.outcome == "failed"] == ["r0", "r1"]
    shop.place.target = good
    await shop.turn(after=1)
    assert shop.there == numbered(6)


@runs
async def test_one_object_that_fails_does_not_stop_its_neighbours(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(5), {})
    shop.target.refuse = lambda change: "no such gateway" if change.key == 2 else None
    await shop.turn()
    assert (sorted(shop.there), shop.state) == ([0, 1, 3, 4], "failing: 1")
    assert [(one.key, one.error) for one in shop.reconciler.outstanding()] == [("r2", "no such gateway")]


@runs
async def test_a_failed_object_is_tried_again_after_growing_pauses(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(1), {}, pace=LoopTimings(audit=Duration(hours=1)))
    tries: list[float] = []
    began = shop.clock.now()

    def refuse(_change: Change[int, str]) -> str:
        tries.append(round((shop.clock.now() - began).total_seconds(), 3))
        return "busy"

    shop.target.refuse = refuse
    await shop.turn(after=0.01, times=1_300)
    waits = [round(b - a, 2) for a, b in itertools.pairwise(tries)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]


@runs
async def test_a_failed_delete_is_tried_again_too(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(9), numbered(10))
    shop.target.refuse = lambda _change: "busy"
    await shop.turn()
    shop.target.refuse = lambda _change: None
    await shop.turn(after=0.2)
    assert (shop.there, shop.state) == (numbered(9), "ok")


@runs
async def test_a_wish_that_changed_is_tried_at_once_in_spite_of_the_backoff(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(1), {})
    shop.target.refuse = lambda change: "bad" if change.new and change.new.value == "v0" else None
    await shop.turn()
    shop.want({0: "better"})
    await shop.look_at(0)
    assert shop.there == {0: "better"}


@pytest.mark.parametrize(
    ("want", "have", "error"),
    [
        ({0: "new"}, {0: "old"}, "different when read back"),
        ({0: "new"}, {}, "missing when read back"),
        ({}, {0: "old"}, "still present when read back"),
    ],
)
def test_a_write_that_was_accepted_and_not_kept_is_a_failure(
    tmp_path: Path, want: dict[int, str], have: dict[int, str], error: str
) -> None:
    shop = Workshop(tmp_path, want, have)
    shop.target.forgets = lambda _change: True
    asyncio.run(shop.turn())
    assert [one.error for one in shop.reconciler.outstanding()] == [error]


@runs
async def test_where_applying_is_a_proof_nothing_is_read_back(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(1), {}, read_back=False)
    shop.target.forgets = lambda _change: True
    await shop.turn()
    assert shop.reconciler.backlog() == 0


class Unsorted(MemorySource[int, str]):
    async def read(self, after: int | None, upto: int | None) -> Sequence[tuple[int, Owned[str]]]:
        return list(reversed(await super().read(after, upto)))


@runs
async def test_a_page_out_of_order_concludes_nothing(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {}, numbered(10), braked=False)
    shop.place.source = Unsorted(owned({**numbered(8), 2: "new"}))
    with pytest.raises(OutOfOrder):
        await shop.turn()
    assert (shop.target.calls, shop.there) == ([], numbered(10))


class Forgetful(MemoryTarget[int, str]):
    async def apply(self, ready: Sequence[Change[int, str]]) -> Sequence[Outcome[int, str]]:
        return (await super().apply(ready))[1:]


@runs
async def test_a_target_that_does_not_answer_for_every_change_is_a_bug_and_ends_the_worker(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(3), {})
    shop.place.target = Forgetful()
    with pytest.raises(RuntimeError, match="3 changes gave 2 outcomes"):
        await shop.turn()


# The loop itself


class Slow(MemoryTarget[int, str]):
    """Tells when a batch has begun, and takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def apply(self, ready: Sequence[Change[int, str]]) -> Sequence[Outcome[int, str]]:
        self.begun.set()
        await asyncio.sleep(0.05)
        return await super().apply(ready)


@runs
async def test_when_told_to_stop_the_batch_under_way_is_finished_and_no_other_begun(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(100), {}, pace=LoopTimings(batch=10))
    target = Slow()
    shop.place.target = target
    stopping = asyncio.Event()
    task = asyncio.create_task(shop.reconciler.run(stopping))
    async with asyncio.timeout(30):
        await target.begun.wait()
        stopping.set()
        await task
    assert len(target.objects) == 10


@runs
async def test_a_mark_wakes_the_loop(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(3), numbered(3), clock=_RealTime())
    stopping = asyncio.Event()
    task = asyncio.create_task(shop.reconciler.run(stopping))
    async with asyncio.timeout(30):
        await until(lambda: shop.vitals.pulse(1, shop.clock.now()).success > NEVER)
        shop.want({**numbered(3), 1: "new"})
        shop.reconciler.dirty.mark([1])
        await until(lambda: shop.there[1] == "new")
        stopping.set()
        await task
    assert shop.reconciler.backlog() == 0


@runs
async def test_marks_do_not_make_the_loop_spin_while_something_is_away(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(3), {}, clock=_RealTime())
    shop.source.away = "connection refused"
    stopping, turns = asyncio.Event(), 0
    attempted = shop.vitals.attempted

    def count(*, success: bool, state: str | None = None) -> None:
        nonlocal turns
        turns += 1
        attempted(success=success, state=state)

    shop.vitals.attempted = count  # type: ignore[method-assign]
    task = asyncio.create_task(shop.reconciler.run(stopping))
    for _ in range(200):
        shop.reconciler.dirty.mark([1])
        await asyncio.sleep(0.005)
    stopping.set()
    await task
    assert 1 <= turns <= 8


# What is told


@runs
async def test_deletes_replaces_and_holds_are_one_record_each_and_creates_one_line_per_batch(tmp_path: Path) -> None:
    want = {**{key: f"v{key}" for key in range(2, 20)}, 3: "new", 4: "new", **dict.fromkeys(range(100, 107), "c")}
    shop = Workshop(tmp_path, want, numbered(20), pace=LoopTimings(batch=1_000))
    await shop.turn()
    shop.want({})
    await shop.turn(after=301)
    told = shop.told()
    assert sorted(told[:5]) == [
        ("create", "r100", "applied"),
        ("delete", "r0", "applied"),
        ("delete", "r1", "applied"),
        ("replace", "r3", "applied"),
        ("replace", "r4", "applied"),
    ]
    assert [one.count for one in shop.records() if one.op == "create"] == [7]
    assert told[5:] == [("hold", f"r{key}", "held") for key in [*range(2, 20), *range(100, 107)]]


@runs
async def test_a_record_has_owner_revision_term_gate_and_reason(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {}, numbered(5))
    shop.want({**numbered(5), 0: "new"})
    await shop.turn()
    (replaced,) = shop.records()
    assert (replaced.worker, replaced.kind, replaced.old, replaced.new) == ("routes", "routes", "db@1", "db@2")
    assert (replaced.revision, replaced.term, replaced.sentence) == (2, 42, "replaced: now wanted by db@2")
    shop.want({})
    await shop.look_at_all()
    held = shop.records()[-1]
    assert (held.op, held.key, held.gate, held.reason) == ("hold", "r4", "brake", "almost_all")
    assert held.sentence == "would delete 5 of 5 routes (100.0%): less than half would stay"


@runs
async def test_a_hold_is_told_once_not_at_every_look(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {}, numbered(10))
    await shop.turn()
    await shop.turn(after=1.1, times=20)
    await shop.turn(after=301)
    assert len(shop.records()) == 10
    assert {(one.gate, one.reason) for one in shop.records()} == {("brake", "almost_all")}


@runs
async def test_a_failure_is_told_each_time_that_it_was_tried_and_not_while_it_waits(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(1), {})
    shop.target.refuse = lambda _change: "busy"
    await shop.turn()
    await shop.look_at(0)
    assert shop.told() == [("create", "r0", "failed")]
    await shop.turn(after=0.2)
    assert shop.told() == [("create", "r0", "failed")] * 2


@runs
async def test_what_is_held_is_counted_by_gate_and_reason_and_vanishes_when_it_flows(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {}, numbered(10))
    await shop.turn()
    assert 'holdfast_gate_closed{gate="brake",reason="almost_all"} 10.0' in shop.metrics.text()
    assert shop.brake is not None
    shop.brake.allow()
    await shop.turn(after=1.1, times=2)
    assert "holdfast_gate_closed{" not in shop.metrics.text()
    assert 'holdfast_changes_total{op="delete",outcome="applied"} 10.0' in shop.metrics.text()


# What changes during a full pass


@runs
async def test_what_changes_during_a_pass_is_done_before_its_next_page_where_news_goes_first(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(9), {}, page=3, braked=False, live_first=True)
    shop.target.objects = owned(dict.fromkeys(range(9), "old"))
    change_once(shop, when=0, to={8: "news"})
    await shop.turn()
    assert [change.key for change in shop.target.calls] == [0, 1, 2, 8, 3, 4, 5, 6, 7]
    assert shop.there == {**numbered(9), 8: "news"}


@runs
async def test_elsewhere_it_waits_for_the_end_of_the_pass(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(9), {}, page=3, braked=False)
    shop.target.objects = owned(dict.fromkeys(range(9), "old"))
    change_once(shop, when=0, to={8: "news"})
    await shop.turn()
    assert [change.key for change in shop.target.calls] == [0, 1, 2, 3, 4, 5, 6, 7]
    await shop.turn()
    assert shop.there == {**numbered(9), 8: "news"}


@runs
async def test_news_that_is_held_stays_held_when_the_pass_is_over(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(9), numbered(9), page=3, braked=False, live_first=True)
    shop.target.refuse = lambda change: "no room" if change.key == 0 else None
    change_once(shop, when=3, to={0: "news"}, also={5: "other"})
    shop.source.objects |= owned({4: "differs"})
    await shop.turn()
    story = shop.reconciler.ledger.outstanding(0)
    assert story is not None
    assert story.error == "no room"
    assert shop.there == {**numbered(9), 4: "differs", 5: "other"}


class Hesitant:
    """A feed whose answer is on its way when somebody has more for it, and says so."""

    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        self.asked = 0

    async def fetch(self) -> Collection[int]:
        self.asked += 1
        if self.asked == 2:
            self.shop.reconciler.dirty.wake()
        return ()

    async def settle(self, is_open: object) -> bool:
        return False


@runs
async def test_who_wakes_the_loop_while_it_asks_its_feed_has_a_turn_of_his_own(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, numbered(3), numbered(3), braked=False)
    shop.reconciler.place.feed = feed = Hesitant(shop)
    await shop.turn(times=2)
    async with asyncio.timeout(5):
        await shop.reconciler.dirty.wait(seconds(60))
    await shop.turn()
    assert feed.asked == 3
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await shop.reconciler.dirty.wait(seconds(60))


def change_once(shop: Workshop, *, when: int, to: Mapping[int, str], also: Mapping[int, str] | None = None) -> None:
    """While the page with that key is read, these objects change, and the loop is told."""
    read, changed = shop.target.read, {**to, **(also or {})}

    async def reading(after: int | None) -> tuple[Sequence[tuple[int, Owned[str]]], int | None]:
        page, more = await read(after)
        if any(key == when for key, _ in page):
            shop.source.objects |= owned(changed)
            shop.reconciler.dirty.mark(changed)
        return page, more

    shop.target.read = reading  # type: ignore[method-assign]
