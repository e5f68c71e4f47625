"""The pool that serves, with a fail-back delay of ten seconds."""

from __future__ import annotations

from holdfast.balancer.desired.fail_back import PoolMemory, adopted, step
from holdfast.model.base.time import Instant, seconds

WORDS = {"y": True, "n": False, "?": None}
START = Instant(1_000_000_000_000)


def chosen(*story: tuple[float, str], memory: PoolMemory | None = None) -> list[int | None]:
    """The pool that serves after each event: at that second, each pool can serve (y), cannot (n), or may (?)."""
    found, memory = [], memory or PoolMemory()
    for at, pools in story:
        pool, memory, _ = step(memory, [WORDS[one] for one in pools], seconds(10), START + seconds(at))
        found.append(pool)
    return found


def test_a_pool_that_recovers_takes_over_after_the_delay() -> None:
    assert chosen((0, "yy"), (1, "ny"), (5, "yy"), (14.9, "yy"), (15, "yy")) == [0, 1, 1, 1, 0]


def test_the_time_of_the_switch_is_announced() -> None:
    _, memory, due = step(PoolMemory(), [False, True], seconds(10), START)
    assert due is None
    _, memory, due = step(memory, [True, True], seconds(10), START + seconds(3))
    assert due == START + seconds(13)
    assert step(memory, [True, True], seconds(10), due)[0] == 0


def test_a_break_begins_the_delay_anew() -> None:
    assert chosen((0, "ny"), (1, "yy"), (8, "ny"), (9, "yy"), (18, "yy"), (19, "yy")) == [1, 1, 1, 1, 1, 0]


def test_a_pool_that_has_never_failed_does_not_wait() -> None:
    assert chosen((0, "??"), (1, "?y"), (2, "yy")) == [None, 1, 0]


def test_after_an_outage_of_all_the_first_to_recover_serves_and_an_earlier_pool_waits() -> None:
    assert chosen((0, "yy"), (1, "nn"), (2, "ny"), (3, "yy"), (12, "yy"), (13, "yy")) == [0, None, 1, 1, 1, 0]


def test_a_pool_that_serves_is_never_left_for_a_later_one() -> None:
    assert chosen((0, "nn"), (5, "yn"), (6, "yy"), (15, "yy"), (40, "yy")) == [None, 0, 0, 0, 0]


def test_when_the_serving_pool_fails_one_that_waits_is_the_last_resort() -> None:
    assert chosen((0, "nny"), (1, "nyy"), (2, "nyn")) == [2, 2, 1]


def test_after_a_restart_the_pool_of_the_dataplane_serves_until_the_others_have_waited() -> None:
    assert chosen((0, "??"), (1, "y?"), (2, "yy"), (10, "yy"), (11, "yy"), memory=adopted(1)) == [None, 0, 1, 1, 0]


def test_after_a_restart_a_pool_that_turns_out_dead_is_not_waited_for() -> None:
    assert chosen((0, "y?"), (1, "yn"), (2, "yy"), memory=adopted(1)) == [0, 0, 0]
