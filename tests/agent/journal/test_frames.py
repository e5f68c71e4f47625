"""Frames in any bytes: entries that are certainly ours are found, the rest is named as damage, nothing is invented."""

from __future__ import annotations

import pytest
from google_crc32c import value
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.journal import frames
from holdfast.agent.journal.frames import Damage, EntryKind, FoundEntry, JournalEntry, NewerFrame, TooLong, pack, scan
from holdfast.agent.journal.replay import JournalCondition, judge, replay
from tests.agent.journal.harness import BOOT, ENTRIES, FRAMES, WHOLE, frame_at, state, told_by

NOISE = st.binary(max_size=60).filter(lambda noise: not any(isinstance(found, FoundEntry) for found in scan(noise)))
"""Any bytes except a frame with a valid checksum."""
ANY_ENTRIES = st.lists(
    st.builds(
        JournalEntry,
        st.sampled_from([EntryKind.ADD, EntryKind.DELETING, EntryKind.DONE]),
        st.binary(min_size=1, max_size=8) | st.sampled_from([b"a", b"b", frames.MAGIC]),
        NOISE | st.sampled_from([frames.MAGIC, FRAMES[0][:-1]]),
    ),
    max_size=12,
)


def records(data: bytes) -> list[FoundEntry]:
    return [found for found in scan(data) if isinstance(found, FoundEntry)]


def test_the_checksum_is_crc_32c() -> None:
    assert value(b"123456789") == 0xE3069283


def test_the_frame_is_the_one_that_every_release_since_the_first_reads() -> None:
    written = "f548464a 01 01 0100 06000000 0700000000000000 6b 6f626a656374 11b60f6d"
    assert pack([JournalEntry(EntryKind.ADD, b"k", b"object")], 7) == bytes.fromhex(written)


def test_nothing_is_written_that_this_release_could_not_read() -> None:
    assert frames.WRITES <= frames.READS


@given(ANY_ENTRIES)
def test_what_was_packed_is_found(entries: list[JournalEntry]) -> None:
    found = list(scan(pack(entries, 5)))
    assert found == [FoundEntry(*entry, sequence) for sequence, entry in enumerate(entries, 5)]


@given(ANY_ENTRIES, st.integers(1, 3))
def test_a_whole_file_is_read_in_runs_exactly_as_it_is_read_record_by_record(
    entries: list[JournalEntry], first: int
) -> None:
    data = pack(entries, first)
    assert in_runs(data) in (records(data), None)
    if first == 1 and not any(frames.MAGIC in entry.key + entry.body for entry in entries):
        assert in_runs(data) == records(data)


@settings(max_examples=150)
@given(ANY_ENTRIES, NOISE, st.integers(0, 400), st.integers(0, 60))
def test_bytes_with_a_gap_are_never_read_in_runs(
    entries: list[JournalEntry], noise: bytes, at: int, removed: int
) -> None:
    data = pack(entries, 1)
    spoilt = data[:at] + noise + data[at + removed :]
    found = list(scan(spoilt))
    assert in_runs(spoilt) in (found, None)


def test_runs_end_where_a_frame_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for stretch in range(1, len(WHOLE)):
        monkeypatch.setattr(frames, "_STRETCH", stretch)
        assert in_runs(WHOLE) == records(WHOLE)


def in_runs(data: bytes) -> list[FoundEntry] | None:
    found: list[FoundEntry] = []
    try:
        for run in frames.read_whole(data):
            entries = [(EntryKind(op), key, body) for op, key, body in zip(*run, strict=True)]
            found += [FoundEntry(*entry, sequence) for sequence, entry in enumerate(entries, len(found) + 1)]
    except frames.NotWhole:
        return None
    return found


def test_torn_at_every_byte_the_records_before_the_tear_are_found() -> None:
    for cut in range(len(WHOLE)):
        found = replay(WHOLE[:cut])
        whole = frame_at(cut)
        assert state(found.contents) == told_by(ENTRIES[:whole])
        start = sum(map(len, FRAMES[:whole]))
        assert found.damage == ([Damage(start, cut)] if start < cut else [])
        assert found.torn == (start < cut)


@pytest.mark.parametrize("bit", range(8))
def test_flipped_at_every_bit_only_the_record_that_it_hit_is_missing(bit: int) -> None:
    for offset in range(len(WHOLE)):
        flipped = bytearray(WHOLE)
        flipped[offset] ^= 1 << bit
        found = replay(bytes(flipped))
        hit = frame_at(offset)
        assert state(found.contents) == told_by([*ENTRIES[:hit], *ENTRIES[hit + 1 :]])
        start = sum(map(len, FRAMES[:hit]))
        assert found.damage == [Damage(start, start + len(FRAMES[hit]))]
        assert judge(found, BOOT.encode()) in (JournalCondition.DAMAGED, JournalCondition.TORN)


def test_zeroed_from_every_byte_the_records_before_are_found() -> None:
    for start in range(len(WHOLE)):
        found = replay(WHOLE[:start] + bytes(len(WHOLE) - start))
        assert state(found.contents) == told_by(ENTRIES[: frame_at(start)])


def test_cut_out_at_every_frame_the_gap_is_counted() -> None:
    for number in range(len(FRAMES) - 1):
        found = replay(b"".join([*FRAMES[:number], *FRAMES[number + 1 :]]))
        assert found.missing == 1
        assert judge(found, BOOT.encode()) is JournalCondition.DAMAGED


def test_a_stale_copy_of_an_entry_is_ignored() -> None:
    """Otherwise it would bring back an old state: here an object that was deleted long ago."""
    found = replay(WHOLE + FRAMES[5])
    assert state(found.contents) == told_by(ENTRIES)
    assert found.damage == [Damage(len(WHOLE), len(WHOLE) + len(FRAMES[5]))]


def test_a_frame_with_an_old_sequence_inside_a_damaged_body_is_ignored() -> None:
    inner = pack([JournalEntry(EntryKind.DELETING, b"live", b"x")], 1)
    outer = bytearray(pack([JournalEntry(EntryKind.ADD, b"k", b"y" + inner)], 2))
    outer[-1] ^= 1
    data = pack([JournalEntry(EntryKind.ADD, b"live", b"x")], 1) + bytes(outer)
    assert records(data) == [FoundEntry(EntryKind.ADD, b"live", b"x", 1)]


def test_no_text_contains_the_magic() -> None:
    with pytest.raises(UnicodeDecodeError):
        frames.MAGIC.decode()


@settings(max_examples=150)
@given(ANY_ENTRIES, NOISE, st.integers(0, 400), st.integers(0, 60))
def test_whatever_is_written_over_a_journal_the_frames_beside_it_are_found(
    entries: list[JournalEntry], noise: bytes, at: int, removed: int
) -> None:
    parts = [pack([entry], sequence) for sequence, entry in enumerate(entries, 1)]
    data = b"".join(parts)
    at = min(at, len(data))
    spoilt = data[:at] + noise + data[at + removed :]
    ends = [sum(map(len, parts[: number + 1])) for number in range(len(parts))]
    untouched = [
        FoundEntry(*entry, sequence)
        for sequence, (entry, part, end) in enumerate(zip(entries, parts, ends, strict=True), 1)
        if end <= at or end - len(part) >= at + removed
    ]
    found = records(spoilt)
    assert [record for record in found if record in untouched] == untouched
    assert all(record in [FoundEntry(*entry, number) for number, entry in enumerate(entries, 1)] for record in found)


@given(NOISE)
def test_foreign_bytes_contain_no_entry_and_are_all_damage(data: bytes) -> None:
    assert list(scan(data)) == ([Damage(0, len(data))] if data else [])


def test_a_whole_frame_of_a_newer_version_is_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(frames, "WRITES", frames.READS + 1)
        data = WHOLE + pack([JournalEntry(EntryKind.ADD, b"k", b"x")], len(FRAMES) + 1)
    with pytest.raises(NewerFrame, match=r"of version 2, and this release reads up to 1"):
        list(scan(data))


def test_a_version_that_was_only_flipped_is_damage() -> None:
    flipped = bytearray(FRAMES[1])
    flipped[4] = 9
    assert list(scan(bytes(flipped))) == [Damage(0, len(flipped))]


@pytest.mark.parametrize(
    "entry", [JournalEntry(EntryKind.ADD, b"k" * 4_097), JournalEntry(EntryKind.ADD, b"k", b"x" * ((1 << 20) + 1))]
)
def test_what_is_too_long_is_refused_in_one_sentence(entry: JournalEntry) -> None:
    with pytest.raises(TooLong, match="is too long for the journal"):
        pack([entry], 1)
