"""Own writes must come back: what counts as missing."""

from __future__ import annotations

from holdfast.model.base.time import Duration, Instant
from holdfast.store.api import OwnKey
from holdfast.store.watch.own_writes import OwnWriteCheck, OwnWrites

OWN = OwnKey(b"own", Duration(seconds=10))
NOW = Instant(10**12)


def later(seconds: float) -> Instant:
    return NOW + Duration(seconds=seconds)


def test_a_write_that_came_back_is_not_missed() -> None:
    echo = OwnWriteCheck(OWN)
    echo.wrote(5, NOW)
    echo.delivered(5)
    assert echo.missing(later(100)) == 0


def test_a_write_is_missed_after_two_intervals() -> None:
    echo = OwnWriteCheck(OWN)
    echo.wrote(5, NOW)
    assert echo.missing(later(19)) == 0
    assert echo.missing(later(21)) == 5


def test_fresh_writes_do_not_hide_that_an_old_one_is_missing() -> None:
    echo = OwnWriteCheck(OWN)
    for i in range(5):
        echo.wrote(5 + i, later(5 * i))
    assert echo.missing(later(21)) == 5


def test_a_write_that_came_back_before_its_reply_is_not_missed() -> None:
    echo = OwnWriteCheck(OWN)
    echo.delivered(5)
    echo.wrote(5, NOW)
    assert echo.missing(later(100)) == 0


def test_a_new_stream_need_not_show_what_was_written_before_it() -> None:
    echo = OwnWriteCheck(OWN)
    echo.wrote(5, NOW)
    echo.reopened(7)
    assert echo.missing(later(100)) == 0


def test_a_key_that_another_process_writes_is_noticed_as_such() -> None:
    echo = OwnWriteCheck(OWN)
    echo.wrote(5, NOW)
    assert not echo.unwritten(later(19))
    assert echo.unwritten(later(21))


def test_a_key_that_is_written_seldom_is_not_taken_for_unwritten_between_two_writes() -> None:
    echo = OwnWriteCheck(OwnKey(b"own", Duration(seconds=10), written_every=Duration(seconds=30)))
    echo.wrote(5, NOW)
    assert not echo.unwritten(later(59))
    assert echo.unwritten(later(61))
    assert echo.missing(later(21)) == 5


def test_a_write_of_another_history_proves_no_stream() -> None:
    echo = OwnWriteCheck(OWN)
    echo.delivered(100)
    echo.wrote(5, NOW)
    assert echo.unwritten(NOW)


def test_writes_reach_every_stream_that_waits_for_them() -> None:
    writes, echoes = (
        OwnWrites(),
        [OwnWriteCheck(OWN), OwnWriteCheck(OWN), OwnWriteCheck(OwnKey(b"other", OWN.interval))],
    )
    for echo in echoes:
        writes.add(echo)
    writes.note([b"own"], 5, NOW)
    assert [echo.missing(later(21)) for echo in echoes] == [5, 5, 0]
    for echo in echoes:
        writes.remove(echo)
    assert not writes
