"""What a client of the event stream gets when it connects, and when it comes back."""

from __future__ import annotations

from holdfast.api.stream.replay import StreamReplay


def events(replay: StreamReplay, number: int | None) -> list[tuple[str, str]]:
    return [(one.event, one.data) for one in replay.after(number)]


def test_a_new_client_gets_the_levels_and_what_the_increments_add_up_to() -> None:
    replay = StreamReplay("e")
    replay.level("status", "old")
    replay.level("status", "new")
    replay.increment("cells", "+1", ("hosts", "1"))
    replay.increment("cells", "+2", ("hosts", "12"))
    assert events(replay, None) == [("status", "new"), ("hosts", "12")]


def test_a_client_that_comes_back_gets_every_increment_that_it_missed() -> None:
    replay = StreamReplay("e")
    replay.increment("cells", "+1", ("hosts", "1"))
    seen = replay.newest
    replay.increment("cells", "+2", ("hosts", "12"))
    replay.level("status", "new")
    replay.increment("cells", "+3", ("hosts", "123"))
    assert events(replay, seen) == [("cells", "+2"), ("status", "new"), ("cells", "+3")]


def test_a_client_that_missed_more_than_is_kept_starts_anew() -> None:
    replay = StreamReplay("e", most=2)
    replay.increment("cells", "+1", ("hosts", "1"))
    for number in "2345":
        replay.increment("cells", f"+{number}", ("hosts", f"all up to {number}"))
    assert events(replay, 1) == [("hosts", "all up to 5")]
    assert events(replay, 3) == [("cells", "+4"), ("cells", "+5")]


def test_increments_are_bounded_in_bytes() -> None:
    replay = StreamReplay("e", most_bytes=10)
    replay.increment("cells", "x" * 8, ("hosts", "1"))
    replay.increment("cells", "y" * 8, ("hosts", "2"))
    assert events(replay, 1) == [("cells", "y" * 8)]
    assert events(replay, 0) == [("hosts", "2")]


def test_a_level_that_is_the_same_is_not_sent_again() -> None:
    replay = StreamReplay("e")
    assert replay.level("status", "same")
    assert not replay.level("status", "same")
    assert replay.newest == 1


def test_levels_that_were_forgotten_are_sent_once_they_are_read_again_even_if_they_are_the_same() -> None:
    replay = StreamReplay("e")
    replay.level("status", "same")
    replay.increment("hosts", "1", ("hosts", "1"))
    replay.increment("history", "+a", ("history", "a"))
    seen = replay.newest
    replay.forget("hosts")
    assert events(replay, None) == events(replay, seen - 1) == [("history", "a")]
    after = replay.newest
    assert events(replay, after) == []
    assert replay.level("status", "same")
    assert events(replay, after) == [("status", "same")]


def test_numbers_of_another_process_mean_nothing() -> None:
    replay = StreamReplay("e")
    replay.level("status", "x")
    assert replay.number_of("e-1") == 1
    assert [replay.number_of(one) for one in ("other-1", "e-2", "e--1", "e-x", "", "e-" + "9" * 40)] == [None] * 6
