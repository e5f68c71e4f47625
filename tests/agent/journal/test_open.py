"""Opening a journal in any state: never a crash, no good entry lost, nothing invented, nothing thrown away."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdfast.agent.journal import Journal, frames
from holdfast.agent.journal.frames import EntryKind, JournalEntry, pack
from holdfast.agent.journal.journal import JournalUnreadable
from holdfast.agent.journal.replay import JournalCondition
from tests.agent.journal.failing_files import FailingDisk, FullDisk
from tests.agent.journal.harness import BOOT, ENTRIES, FRAMES, WHOLE, State, frame_at, told_by


def known(journal: Journal) -> State:
    return dict(journal.live), dict(journal.deleting)


def reopened(path: Path) -> tuple[JournalCondition, State]:
    """Open, append, close, and open again; return condition and contents then, without what was appended."""
    journal = Journal.open(path, BOOT)
    before = known(journal)
    journal.add([(b"later", b"x")])
    journal.close()
    journal = Journal.open(path, BOOT)
    live, going = known(journal)
    journal.close()
    assert live.pop(b"later") == b"x"
    assert (live, going) == before
    return journal.opened.condition, before


def test_no_journal_is_begun(path: Path) -> None:
    journal = Journal.open(path, BOOT)
    assert journal.opened.condition is JournalCondition.ABSENT
    assert known(journal) == ({}, {})
    journal.close()
    assert reopened(path) == (JournalCondition.WHOLE, ({}, {}))


def test_a_whole_journal_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(WHOLE)
    journal = Journal.open(path, BOOT)
    journal.close()
    assert journal.opened.condition is JournalCondition.WHOLE
    assert journal.opened.sentence == f"{path} has 3 objects, 1 of them being deleted"
    assert known(journal) == told_by(ENTRIES)
    assert path.read_bytes() == WHOLE


def test_a_journal_torn_at_any_byte_is_repaired_for_good(path: Path) -> None:
    for cut in range(len(WHOLE)):
        path.write_bytes(WHOLE[:cut])
        assert reopened(path) == (JournalCondition.WHOLE, told_by(ENTRIES[: frame_at(cut)])), cut


def test_a_journal_flipped_at_any_byte_is_repaired_for_good(path: Path) -> None:
    for offset in range(len(WHOLE)):
        path.write_bytes(WHOLE[:offset] + bytes([WHOLE[offset] ^ 0x10]) + WHOLE[offset + 1 :])
        hit = frame_at(offset)
        assert reopened(path) == (JournalCondition.WHOLE, told_by([*ENTRIES[:hit], *ENTRIES[hit + 1 :]])), offset


def test_a_torn_tail_is_cut_off_and_kept_aside(path: Path) -> None:
    path.write_bytes(WHOLE[:-3])
    journal = Journal.open(path, BOOT)
    journal.close()
    assert journal.opened.condition is JournalCondition.TORN
    assert path.read_bytes() == WHOLE[: -len(FRAMES[-1])]
    assert journal.opened.quarantine is not None
    assert journal.opened.quarantine.read_bytes() == FRAMES[-1][:-3]
    assert "the last write to the journal was interrupted (37 of" in journal.opened.sentence


def test_bad_bytes_in_the_middle_are_quarantined_and_reported(path: Path) -> None:
    path.write_bytes(b"".join([*FRAMES[:4], b"rubbish", *FRAMES[5:]]))
    journal = Journal.open(path, BOOT)
    journal.close()
    opened = journal.opened
    assert (opened.condition, opened.missing) == (JournalCondition.DAMAGED, 1)
    assert opened.quarantine is not None
    assert opened.quarantine.read_bytes() == b"rubbish"
    assert opened.sentence == (
        f"{path}: the journal is damaged (7 of 338 bytes cannot be read, entries lost: 1): using the remaining "
        f"3 objects, 1 of them being deleted, others are found by their tags; "
        f"the bad bytes are kept in {opened.quarantine}"
    )


@pytest.mark.parametrize("content", [b"", b"\0" * 5_000, b'[{"name": "node-1"}]\n', bytes(range(256)) * 8])
def test_a_foreign_or_empty_file_is_kept_aside_and_a_journal_begun(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    journal = Journal.open(path, BOOT)
    journal.close()
    assert journal.opened.condition is JournalCondition.DAMAGED
    assert known(journal) == ({}, {})
    kept = journal.opened.quarantine.read_bytes() if journal.opened.quarantine else b""
    assert kept == content
    assert reopened(path)[0] is JournalCondition.WHOLE


def test_a_journal_of_another_boot_is_discarded_with_a_sentence(path: Path) -> None:
    path.write_bytes(WHOLE)
    journal = Journal.open(path, "another")
    journal.close()
    assert journal.opened.condition is JournalCondition.OTHER_BOOT
    assert "is of another boot of this machine" in journal.opened.sentence
    assert known(journal) == ({}, {})
    assert Journal.open(path, "another").opened.condition is JournalCondition.WHOLE


def test_a_journal_is_not_opened_without_a_boot_id(path: Path) -> None:
    path.write_bytes(WHOLE)
    with pytest.raises(ValueError, match="boot id is empty"):
        Journal.open(path, "")
    assert path.read_bytes() == WHOLE


def test_a_journal_that_has_lost_its_boot_id_counts(path: Path) -> None:
    path.write_bytes(FRAMES[1] + FRAMES[2])
    journal = Journal.open(path, "another")
    assert journal.opened.condition is JournalCondition.DAMAGED
    assert known(journal) == told_by(ENTRIES[1:3])


def test_a_journal_of_a_newer_version_stops_with_a_sentence_and_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(frames, "WRITES", frames.READS + 1)
        path.write_bytes(WHOLE[:-5] + pack([JournalEntry(EntryKind.ADD, b"k", b"x")], 99))
    before = path.read_bytes()
    with pytest.raises(JournalUnreadable, match=r"was written by a newer release.*run that release again"):
        Journal.open(path, BOOT)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_opened_stops_with_a_sentence(path: Path) -> None:
    path.mkdir()
    with pytest.raises(JournalUnreadable, match=r"cannot open the journal .* \(Is a directory\)"):
        Journal.open(path, BOOT)


@pytest.mark.parametrize("content", [WHOLE[:-3], WHOLE[:100] + b"rubbish" + WHOLE[100:]])
@pytest.mark.parametrize("room", [0, 5, 60, 200])
def test_without_room_for_a_repair_the_journal_is_used_as_it_is(path: Path, content: bytes, room: int) -> None:
    path.write_bytes(content)
    disk = FullDisk(room)
    journal = Journal.open(path, BOOT, files=disk)
    before = known(journal)
    disk.room = 10_000
    journal.add([(b"later", b"x")])
    journal.close()
    after = Journal.open(path, BOOT)
    assert dict(after.live) == {**before[0], b"later": b"x"}
    assert dict(after.deleting) == before[1]


@pytest.mark.parametrize("call", ["create", "sync", "rename"])
def test_a_repair_that_fails_loses_nothing(path: Path, call: str) -> None:
    path.write_bytes(WHOLE[:100] + b"rubbish" + WHOLE[100:])
    expected = known(Journal.open(path, BOOT))
    path.write_bytes(WHOLE[:100] + b"rubbish" + WHOLE[100:])
    journal = Journal.open(path, BOOT, files=FailingDisk(call, errno.EIO))
    assert "could not be repaired (Input/output error)" in journal.opened.sentence
    assert known(journal) == expected
    journal.done([b"10.0.0.2/32"])
    journal.close()
    assert b"10.0.0.2/32" not in Journal.open(path, BOOT).live


def test_what_a_killed_compaction_left_is_removed(path: Path) -> None:
    path.write_bytes(WHOLE)
    left = path.with_name("journal.new")
    left.write_bytes(WHOLE[:40])
    journal = Journal.open(path, BOOT)
    assert known(journal) == told_by(ENTRIES)
    assert not left.exists()
