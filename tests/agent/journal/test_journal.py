"""Writing ahead: a call that returns outlives the process, a call that raises has changed nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.agent.journal import Journal
from holdfast.agent.journal.frames import EntryKind, JournalEntry, TooLong
from holdfast.agent.journal.journal import JournalUnwritable
from holdfast.agent.journal.replay import JournalCondition
from tests.agent.journal.failing_files import CountingDisk, FullDisk, StuckDisk
from tests.agent.journal.harness import BOOT, inline, told_by

KEYS = st.sampled_from([b"a", b"b", b"c"])
ENTRIES = st.builds(
    JournalEntry, st.sampled_from([EntryKind.ADD, EntryKind.DELETING]), KEYS, st.sampled_from([b"1", b"2"])
) | st.builds(JournalEntry, st.just(EntryKind.DONE), KEYS)
STEPS = st.lists(st.lists(ENTRIES, max_size=5) | st.sampled_from(["reopen", "compact"]), max_size=12)


def test_an_object_is_known_from_its_add_to_its_done(path: Path) -> None:
    journal = Journal.open(path, BOOT)
    journal.add([(b"a", b"1"), (b"b", b"2")])
    journal.begin_delete([(b"a", b"1")])
    assert (dict(journal.live), dict(journal.deleting)) == ({b"b": b"2"}, {b"a": b"1"})
    journal.done([b"a"])
    assert (dict(journal.live), dict(journal.deleting)) == ({b"b": b"2"}, {})


def test_an_object_that_comes_back_is_no_longer_being_removed(path: Path) -> None:
    journal = Journal.open(path, BOOT)
    journal.begin_delete([(b"a", b"1")])
    journal.add([(b"a", b"2")])
    assert (dict(journal.live), dict(journal.deleting)) == ({b"a": b"2"}, {})


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_history_with_restarts_and_compactions_is_remembered(
    path: Path, steps: list[list[JournalEntry] | str]
) -> None:
    path.unlink(missing_ok=True)
    journal = Journal.open(path, BOOT)
    written: list[JournalEntry] = []
    for step in steps:
        if step == "reopen":
            journal.close()
            journal = Journal.open(path, BOOT)
            assert journal.opened.condition is JournalCondition.WHOLE
        elif step == "compact":
            asyncio.run(journal.compact(inline))
        elif isinstance(step, list):
            journal.write(step)
            written += step
        assert (dict(journal.live), dict(journal.deleting)) == told_by(written)
    journal.close()


def test_a_batch_is_one_write_without_a_sync(path: Path) -> None:
    disk = CountingDisk()
    journal = Journal.open(path, BOOT, files=disk)
    disk.asked()
    journal.add((b"%d" % number, b"x") for number in range(1_000))
    asked = disk.asked()
    assert (asked["write"], asked["sync"]) == (1, 0)


def test_what_is_known_already_is_not_written_again(path: Path) -> None:
    journal = Journal.open(path, BOOT)
    journal.add([(b"a", b"1")])
    journal.begin_delete([(b"b", b"1")])
    size = journal.size
    journal.add([(b"a", b"1")])
    journal.begin_delete([(b"b", b"1")])
    journal.done([b"unknown"])
    assert journal.size == size


@pytest.mark.parametrize("room", range(0, 70, 3))
def test_a_full_disk_takes_a_batch_as_a_whole_or_not_at_all(path: Path, room: int) -> None:
    disk = FullDisk(10_000)
    journal = Journal.open(path, BOOT, files=disk)
    journal.add([(b"a", b"1")])
    disk.room = room
    with pytest.raises(JournalUnwritable, match=r"No space left on device.*free space on the file system of"):
        journal.add([(b"b", b"2"), (b"c", b"x" * 20)])
    assert dict(journal.live) == {b"a": b"1"}
    disk.room = 10_000
    journal.add([(b"d", b"4")])
    journal.close()
    journal = Journal.open(path, BOOT)
    assert journal.opened.condition is JournalCondition.WHOLE
    assert dict(journal.live) == {b"a": b"1", b"d": b"4"}


def test_what_a_full_disk_does_not_give_back_hides_nothing_that_comes_later(path: Path) -> None:
    """A whole frame of the refused batch stays on disk: it may count, and must not cost later entries."""
    disk = StuckDisk(10_000)
    journal = Journal.open(path, BOOT, files=disk)
    disk.room = 40
    with pytest.raises(JournalUnwritable):
        journal.add([(b"b", b"2"), (b"c", b"x" * 20)])
    disk.room = 10_000
    journal.add([(b"d", b"4")])
    journal.close()
    assert dict(Journal.open(path, BOOT).live) == {b"b": b"2", b"d": b"4"}


def test_what_a_disk_did_not_give_back_once_does_not_cost_what_came_behind_it_at_the_next_refusal(path: Path) -> None:
    disk = StuckDisk(10_000)
    journal = Journal.open(path, BOOT, files=disk)
    disk.room = 15
    with pytest.raises(JournalUnwritable):
        journal.add([(b"b", b"2")])
    disk.room = 10_000
    journal.add([(b"d", b"4")])
    disk.room, disk.is_stuck = 5, False
    with pytest.raises(JournalUnwritable):
        journal.add([(b"e", b"5")])
    journal.close()
    assert dict(Journal.open(path, BOOT).live) == {b"d": b"4"}


def test_one_object_that_is_too_long_is_refused_before_anything_is_written(path: Path) -> None:
    journal = Journal.open(path, BOOT)
    size = journal.size
    with pytest.raises(TooLong):
        journal.add([(b"a", b"1"), (b"b", b"x" * 2_000_000)])
    assert (journal.size, dict(journal.live)) == (size, {})
    journal.add([(b"a", b"1")])
    journal.close()
    assert Journal.open(path, BOOT).opened.condition is JournalCondition.WHOLE
