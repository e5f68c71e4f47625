"""Opens a journal: turns whatever is found on disk into contents and a file that can be appended to.

Nothing is dropped before it is safe elsewhere: bad bytes are quarantined first, then the file is truncated or
rewritten. Killed in between, the next start does the same again. Where there is no room for that, the file is appended
to as it is: reading steps over bad bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from google_crc32c import extend

from holdfast.agent.journal.compaction import JournalCompaction, unfinished
from holdfast.agent.journal.contents import JournalContents
from holdfast.agent.journal.files import Files
from holdfast.agent.journal.replay import JournalCondition, Replay, judge, replay
from holdfast.agent.journal.segment import Segment
from holdfast.store.mirror.gc_pause import gc_paused

_BYTES_PER_RECORD = 200
"""About that many."""


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """Result of opening. Anything but WHOLE is worth a log line, and DAMAGED a warning."""

    condition: JournalCondition
    sentence: str
    quarantine: Path | None = None
    """File with the bytes that could not be read."""
    missing: int = 0
    """Entries that are known to be lost; there may be more."""


def open_segment(files: Files, path: Path, boot: bytes) -> tuple[Segment, JournalContents, OpenedJournal]:
    """Raise `OSError` or `NewerFrame`; then nothing was changed."""
    data = files.read(path)
    with gc_paused(len(data or b"") // _BYTES_PER_RECORD):
        found = Replay() if data is None else replay(data)
    condition = JournalCondition.ABSENT if data is None else judge(found, boot)
    contents = contents_for_boot(found, condition)
    files.remove(unfinished(path))
    if condition in (JournalCondition.TORN, JournalCondition.DAMAGED):
        segment, opened = _repaired(files, path, boot, data or b"", found, condition)
    elif condition is JournalCondition.WHOLE:
        segment = _unchanged(files, path, data or b"", found)
        opened = OpenedJournal(condition, f"{path} has {_count(contents)}")
    else:
        segment = _rewritten(files, path, boot, contents)
        opened = OpenedJournal(
            condition, f"{path}: {condition.value}; starting a new one, objects of ours are found by their tags"
        )
    if condition is not JournalCondition.WHOLE:
        files.sync_folder(path.parent)
    return segment, contents, opened


def contents_for_boot(found: Replay, condition: JournalCondition) -> JournalContents:
    # protection: N2, N3: objects of an earlier run stay known to this one, and to every file that it writes.
    return JournalContents() if condition is JournalCondition.OTHER_BOOT else found.contents


def _repaired(
    files: Files, path: Path, boot: bytes, data: bytes, found: Replay, condition: JournalCondition
) -> tuple[Segment, OpenedJournal]:
    segment = _unchanged(files, path, data, found)
    quarantine, unrepaired = None, ""
    try:
        quarantine = _quarantine(files, path, b"".join(data[bad.start : bad.end] for bad in found.damage))
        if condition is JournalCondition.TORN:
            truncate_torn_write(segment, found)
        else:
            repaired = _rewritten(files, path, boot, found.contents)
            segment.close()
            segment = repaired
    except OSError as error:
        unrepaired = f"; it could not be repaired ({error.strerror}) and is used as it is"
    kept = f"; the bad bytes are kept in {quarantine}" if quarantine else ""
    counts = f"using the remaining {_count(found.contents)}, others are found by their tags"
    sentence = f"{path}: {condition.value} ({_damage(data, found)}): {counts}{kept}{unrepaired}"
    return segment, OpenedJournal(condition, sentence, quarantine, found.missing)


def truncate_torn_write(segment: Segment, found: Replay) -> None:
    # protection: N7: nothing is ever written behind half an entry.
    segment.truncate(found.damage[0].start)


def _damage(data: bytes, found: Replay) -> str:
    if not data:
        return "it is empty"
    bad = sum(bad.end - bad.start for bad in found.damage)
    gone = f", entries lost: {found.missing:,}" if found.missing else ""
    return f"{bad:,} of {len(data):,} bytes cannot be read{gone}"


def _count(contents: JournalContents) -> str:
    return f"{len(contents):,} objects, {len(contents.deleting):,} of them being deleted"


def _quarantine(files: Files, path: Path, bad: bytes) -> Path | None:
    """Keep these bytes in a file of their own. The same bytes go to the same file, so a killed start can repeat it."""
    if not bad:
        return None
    quarantine = path.with_name(f"{path.name}.bad-{extend(0, bad):08x}")
    fd = files.create(quarantine)
    try:
        rest = memoryview(bad)
        while rest:
            rest = rest[files.write(fd, rest) :]
        files.sync(fd)
    except OSError:
        files.remove(quarantine)
        raise
    finally:
        files.close(fd)
    return quarantine


def _unchanged(files: Files, path: Path, data: bytes, found: Replay) -> Segment:
    return Segment(files, files.append_to(path), len(data), found.last)


def _rewritten(files: Files, path: Path, boot: bytes, contents: JournalContents) -> Segment:
    compaction = JournalCompaction(files, path, boot, contents)
    try:
        for _ in compaction.slices():
            pass
        compaction.segment.sync()
        compaction.install()
    except OSError:
        compaction.stop()
        compaction.abandon()
        raise
    return compaction.segment
