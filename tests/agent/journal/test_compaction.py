"""Compaction: the journal shrinks while events go on, and stays correct at every moment."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.agent.journal import Journal, compaction
from holdfast.agent.journal.frames import EntryKind, JournalEntry
from holdfast.agent.journal.journal import JournalUnwritable
from holdfast.agent.journal.replay import JournalCondition
from tests.agent.journal.failing_files import FailingDisk, FullDisk
from tests.agent.journal.harness import BOOT, State, inline, told_by, turn

KEYS = [b"%02d" % number for number in range(12)]
EVENTS = st.lists(
    st.lists(
        st.builds(
            JournalEntry,
            st.sampled_from([EntryKind.ADD, EntryKind.DELETING, EntryKind.DONE]),
            st.sampled_from(KEYS),
            st.just(b"new"),
        ),
        max_size=3,
    ),
    max_size=16,
)


def known(journal: Journal) -> State:
    return dict(journal.live), dict(journal.deleting)


def grown(path: Path, disk: FullDisk | FailingDisk | None = None) -> Journal:
    journal = Journal.open(path, BOOT, files=disk)
    for value in (b"1", b"2", b"3"):
        journal.add((key, value) for key in KEYS)
    return journal


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS, died=st.booleans())
def test_events_at_any_moment_of_a_compaction_are_in_what_comes_of_it(
    path: Path, events: list[list[JournalEntry]], died: bool
) -> None:
    async def scene() -> Journal:
        journal = grown(path)
        task = asyncio.create_task(journal.compact(inline))
        for batch in events:
            await turn()
            journal.write(batch)
        if died:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return journal

    path.unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SLICE", 1)
        journal = asyncio.run(scene())
    expected = told_by(
        [*(JournalEntry(EntryKind.ADD, key, b"3") for key in KEYS), *(entry for batch in events for entry in batch)]
    )
    assert known(journal) == expected
    journal.close()
    again = Journal.open(path, BOOT)
    again.close()
    assert again.opened.condition is JournalCondition.WHOLE
    assert known(again) == expected


def test_a_compacted_journal_holds_nothing_but_what_is_known(path: Path) -> None:
    journal = grown(path)
    before = journal.size
    asyncio.run(journal.compact(inline))
    assert journal.size == path.stat().st_size < before / 2


def test_a_journal_is_compacted_when_more_than_half_of_it_is_history(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.agent.journal.journal.SMALLEST_TO_COMPACT", 0)
    journal = Journal.open(path, BOOT)
    wanted = []
    for value in (b"x", b"y"):
        journal.add((key, value * 100) for key in KEYS)
        wanted.append(journal.wants_compaction)
    assert wanted == [False, True]
    asyncio.run(journal.compact(inline))
    assert not journal.wants_compaction


def test_the_old_file_is_the_journal_until_the_new_one_is_complete(path: Path) -> None:
    """Checked in the last moment before the new file is installed."""
    seen: list[State] = []

    def told() -> State:
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        return known(Journal.open(copy, BOOT))

    async def look(work: Callable[[], None]) -> None:
        if not seen:
            seen.append(told())
        work()

    journal = grown(path)
    asyncio.run(journal.compact(look))
    assert seen == [known(journal)]


def test_events_are_written_while_the_disk_takes_its_time_to_sync(path: Path) -> None:
    async def scene() -> None:
        journal = grown(path)
        asked, go_on = threading.Event(), threading.Event()

        async def slowly(work: Callable[[], None]) -> None:
            def blocked() -> None:
                asked.set()
                assert go_on.wait(30)
                work()

            await asyncio.to_thread(blocked)

        task = asyncio.create_task(journal.compact(slowly))
        while not asked.is_set():
            await turn()
        journal.add([(b"meanwhile", b"x")])
        assert not task.done()
        go_on.set()
        await task
        journal.close()

    asyncio.run(scene())
    assert Journal.open(path, BOOT).live[b"meanwhile"] == b"x"


def test_a_second_compaction_leaves_the_first_alone(path: Path) -> None:
    async def scene() -> None:
        journal = grown(path)
        first = asyncio.create_task(journal.compact(inline))
        await turn()
        await journal.compact(inline)
        await first
        journal.close()

    asyncio.run(scene())
    assert Journal.open(path, BOOT).opened.condition is JournalCondition.WHOLE


@pytest.mark.parametrize("room", [0, 40, 200, 370])
def test_without_room_for_it_the_journal_goes_on(path: Path, room: int) -> None:
    disk = FullDisk(1 << 20)
    journal = grown(path, disk)
    disk.room = room
    with pytest.raises(JournalUnwritable, match=r"cannot compact the journal .* \(No space left on device\)"):
        asyncio.run(journal.compact(inline))
    assert list(path.parent.iterdir()) == [path]
    disk.room = 1 << 20
    journal.add([(b"later", b"x")])
    assert not journal.wants_compaction
    asyncio.run(journal.compact(inline))
    journal.close()
    assert known(Journal.open(path, BOOT)) == known(journal)


def test_an_event_does_not_suffer_from_a_compaction_that_runs_out_of_room(path: Path) -> None:
    async def scene() -> Journal:
        disk = FullDisk(1 << 20)
        journal = grown(path, disk)
        task = asyncio.create_task(journal.compact(inline))
        await turn()
        disk.room = 40
        journal.add([(b"meanwhile", b"x")])
        disk.room = 1 << 20
        with pytest.raises(JournalUnwritable):
            await task
        journal.close()
        return journal

    journal = asyncio.run(scene())
    assert known(Journal.open(path, BOOT)) == known(journal)
    assert journal.live[b"meanwhile"] == b"x"


@pytest.mark.parametrize("call", ["create", "sync", "rename"])
def test_a_compaction_that_fails_at_any_call_leaves_the_journal(path: Path, call: str) -> None:
    disk = FailingDisk("")
    journal = grown(path, disk)
    disk.call, disk.number = call, errno.EIO
    with pytest.raises(JournalUnwritable, match="Input/output error"):
        asyncio.run(journal.compact(inline))
    journal.add([(b"later", b"x")])
    journal.close()
    assert known(Journal.open(path, BOOT)) == known(journal)
