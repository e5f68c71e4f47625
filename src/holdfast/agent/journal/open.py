"""Opening a journal: whatever is found there becomes a file that can be appended to, and what is known.

Nothing is thrown away before it is safe elsewhere: bad bytes are put aside first, then the file is cut at the tear or
written anew. Killed in between, the next start does the same again. Where there is no room for that, the file stays as
it is and is appended to: reading steps over what is bad.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from google_crc32c import extend

from holdfast.agent.journal.compaction import JournalCompaction, unfinished
from holdfast.agent.journal.files import Files
from holdfast.agent.journal.replay import JournalCondition, JournalContents, Replay, judge, recall
from holdfast.agent.journal.segment import Segment


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """What was found at the start. Anything but WHOLE is worth a log line, and DAMAGED a warning."""

    found: JournalCondition
    sentence: str
    aside: Path | None = None
    """Where the bytes are that could not be understood."""
    missing: int = 0
    """Records that are known to be gone; there may be more."""


def open_segment(files: Files, path: Path, boot: bytes) -> tuple[Segment, JournalContents, OpenedJournal]:
    """Raises `OSError`, or `Newer`; then nothing was changed."""
    data = files.read(path)
    told = Replay() if data is None else recall(data)
    found = JournalCondition.ABSENT if data is None else judge(told, boot)
    remembered = what_counts(told, found)
    files.remove(unfinished(path))
    if found is JournalCondition.TORN or found is JournalCondition.DAMAGED:
        segment, opening = _repaired(files, path, boot, data or b"", told, found)
    elif found is JournalCondition.WHOLE:
        segment = _as_it_is(files, path, data or b"", told)
        opening = OpenedJournal(found, f"{path} tells of {_count(remembered)}")
    else:
        segment = _anew(files, path, boot, remembered)
        opening = OpenedJournal(
            found, f"{path}: {found.value}; one is begun, and the kernel's own tags tell what is there"
        )
    if found is not JournalCondition.WHOLE:
        files.sync_folder(path.parent)
    return segment, remembered, opening


def what_counts(told: Replay, found: JournalCondition) -> JournalContents:
    # N2, N3: what an earlier run put into the kernel stays known to this one, and to every file that it writes.
    return JournalContents() if found is JournalCondition.OTHER_BOOT else told.remembered


def _repaired(
    files: Files, path: Path, boot: bytes, data: bytes, told: Replay, found: JournalCondition
) -> tuple[Segment, OpenedJournal]:
    segment = _as_it_is(files, path, data, told)
    aside, left = None, ""
    try:
        aside = _put_aside(files, path, b"".join(data[bad.start : bad.end] for bad in told.bad))
        if found is JournalCondition.TORN:
            cut_at_the_tear(segment, told)
        else:
            mended = _anew(files, path, boot, told.remembered)
            segment.close()
            segment = mended
    except OSError as error:
        left = f"; it could not be repaired ({error.strerror}) and is used as it is"
    kept = f"; the bad bytes are kept in {aside}" if aside else ""
    counts = f"{_count(told.remembered)} still count, and the kernel's own tags tell more"
    sentence = f"{path}: {found.value} ({_damage(data, told)}): {counts}{kept}{left}"
    return segment, OpenedJournal(found, sentence, aside, told.missing)


def cut_at_the_tear(segment: Segment, told: Replay) -> None:
    # N7: nothing is ever written behind half a record.
    segment.truncate(told.bad[0].start)


def _damage(data: bytes, told: Replay) -> str:
    if not data:
        return "it is empty"
    bad = sum(bad.end - bad.start for bad in told.bad)
    gone = f", records gone: {told.missing:,}" if told.missing else ""
    return f"{bad:,} of {len(data):,} bytes cannot be read{gone}"


def _count(remembered: JournalContents) -> str:
    return f"{len(remembered):,} objects, {len(remembered.going):,} of them being removed"


def _put_aside(files: Files, path: Path, bad: bytes) -> Path | None:
    """Keeps these bytes in a file of their own. The same bytes go to the same file: killed here, we do it again."""
    if not bad:
        return None
    aside = path.with_name(f"{path.name}.bad-{extend(0, bad):08x}")
    fd = files.create(aside)
    try:
        rest = memoryview(bad)
        while rest:
            rest = rest[files.write(fd, rest) :]
        files.sync(fd)
    except OSError:
        files.remove(aside)
        raise
    finally:
        files.close(fd)
    return aside


def _as_it_is(files: Files, path: Path, data: bytes, told: Replay) -> Segment:
    return Segment(files, files.append_to(path), len(data), told.last)


def _anew(files: Files, path: Path, boot: bytes, remembered: JournalContents) -> Segment:
    compaction = JournalCompaction(files, path, boot, remembered)
    try:
        for _ in compaction.slices():
            pass
        compaction.segment.sync()
        compaction.install()
    except OSError:
        compaction.end()
        compaction.abandon()
        raise
    return compaction.segment
