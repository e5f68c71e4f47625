"""Rows of the fault matrix that the journal protects against."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from holdfast.agent.journal import Journal
from holdfast.agent.journal.frames import EntryKind, JournalEntry, pack
from holdfast.agent.journal.replay import JournalCondition
from holdfast.testing.fault import fault
from tests.agent.journal.failing_files import CountingDisk
from tests.agent.journal.harness import BOOT, ENTRIES, FRAMES, WHOLE, inline, told_by, turn

KNOWN = {b"%d" % number: b"via 192.0.2.%d" % number for number in range(5)}
ONE_LIFE = """
import sys, time
from pathlib import Path
from holdfast.agent.journal.journal import Journal
journal = Journal.open(Path(sys.argv[1]), sys.argv[2])
journal.add([(b"10.0.0.9/32", b"via 192.0.2.9")])
print("in the kernel", flush=True)
time.sleep(60)
"""


def left_by_an_earlier_run(path: Path) -> None:
    journal = Journal.open(path, BOOT)
    journal.add(KNOWN.items())
    journal.close()


@fault(
    "N2",
    without="holdfast.agent.journal.open:contents_for_boot",
    by="tests.agent.journal.without_protection:only_this_run",
    sees=(AssertionError, r"Journal.open\(path, BOOT\).live == KNOWN"),
)
def test_N2_a_stop_before_the_sync_forgets_nothing(path: Path) -> None:
    left_by_an_earlier_run(path)
    journal = Journal.open(path, BOOT)
    asyncio.run(journal.compact(inline))
    journal.close()
    assert Journal.open(path, BOOT).live == KNOWN


@fault(
    "N3",
    without="holdfast.agent.journal.open:contents_for_boot",
    by="tests.agent.journal.without_protection:only_this_run",
    sees=(AssertionError, r'Journal.open\(path, BOOT\).live == \{\*\*KNOWN, b"new": b"via'),
)
def test_N3_the_first_event_after_a_start_forgets_nothing(path: Path) -> None:
    left_by_an_earlier_run(path)
    journal = Journal.open(path, BOOT)
    journal.add([(b"new", b"via 192.0.2.9")])
    asyncio.run(journal.compact(inline))
    del journal  # a crash: it was never closed
    assert Journal.open(path, BOOT).live == {**KNOWN, b"new": b"via 192.0.2.9"}


@fault(
    "N6",
    without="holdfast.agent.journal.frames:intact",
    returns=True,
    sees=(AssertionError, "journal.opened.condition is JournalCondition.DAMAGED"),
)
def test_N6_a_flipped_bit_is_neither_trusted_nor_the_end(path: Path) -> None:
    """Flips a bit in the object of the third entry, whose content is then lost."""
    start = len(FRAMES[0]) + len(FRAMES[1])
    spoilt = start + FRAMES[2].index(b"via") + 4
    path.write_bytes(WHOLE[:spoilt] + b"?" + WHOLE[spoilt + 1 : start + len(FRAMES[2])] + FRAMES[3] + FRAMES[4])
    journal = Journal.open(path, BOOT)
    assert journal.opened.condition is JournalCondition.DAMAGED
    assert dict(journal.live) == told_by([ENTRIES[1], ENTRIES[4]])[0]


@fault(
    "N7",
    without="holdfast.agent.journal.open:truncate_torn_write",
    sees=(AssertionError, "again.opened.condition is JournalCondition.WHOLE"),
)
def test_N7_behind_a_torn_tail_the_journal_goes_on_as_if_it_had_never_been(path: Path) -> None:
    left_by_an_earlier_run(path)
    with path.open("ab") as file:
        file.write(pack([JournalEntry(EntryKind.ADD, b"torn", b"x" * 50)], 9)[:40])
    journal = Journal.open(path, BOOT)
    journal.add([(b"later", b"y")])
    journal.close()
    for _ in range(3):
        again = Journal.open(path, BOOT)
        again.close()
        assert again.opened.condition is JournalCondition.WHOLE
        assert again.live == {**KNOWN, b"later": b"y"}


@fault(
    "N11",
    without="holdfast.agent.journal.segment:Segment.write",
    by="tests.agent.journal.without_protection:written_later",
    sees=(AssertionError, r'Journal.open\(path, BOOT\).live == \{b"10.0.0.9/32": b"via'),
)
def test_N11_killed_right_after_an_add_the_object_is_known(path: Path) -> None:
    command = [sys.executable, "-c", ONE_LIFE, str(path), BOOT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "in the kernel\n"
        os.kill(agent.pid, signal.SIGKILL)
    assert Journal.open(path, BOOT).live == {b"10.0.0.9/32": b"via 192.0.2.9"}


@fault(
    "N15",
    without="holdfast.agent.journal.compaction:key_slices",
    by="tests.agent.journal.without_protection:all_at_once",
    sees=(AssertionError, r"most <= 128 \* 1_100"),
)
def test_N15_no_event_waits_for_more_than_a_slice_of_a_compaction(path: Path) -> None:
    """Counts bytes between two events, not time: of 2 MB in all, an event waits for a few kB."""
    disk = CountingDisk()
    journal = Journal.open(path, BOOT, files=disk)
    journal.add((b"%d" % number, b"x" * 1_000) for number in range(2_000))

    async def scene() -> tuple[int, int]:
        most, events = 0, 0
        task = asyncio.create_task(journal.compact(inline))
        while not task.done():
            disk.asked()
            await turn()
            most = max(most, disk.asked()["bytes"])
            journal.add([(b"event", b"%d" % events)])
            events += 1
        await task
        return most, events

    most, events = asyncio.run(scene())
    assert most <= 128 * 1_100
    assert events >= 2_000 / 128
