"""Segment: one file of frames that is appended to. A batch is written as a whole, or not at all.

A write is done when the kernel has the bytes: from then on they outlive this process. They are not synced to disk,
because a machine that loses its page cache loses the kernel's routes in the same moment, and a journal of another boot
is void (`JournalCondition.OTHER_BOOT`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.agent.journal.files import Files
from holdfast.agent.journal.frames import EntryKind, JournalEntry, pack


class Segment:
    def __init__(self, files: Files, fd: int, size: int = 0, last: int = 0) -> None:
        self._files = files
        self._fd = fd
        self.size = size
        self._last = last

    @classmethod
    def create(cls, files: Files, path: Path, boot: bytes) -> Segment:
        """Create a file with its BEGIN mark. Raises `OSError`; then there is no such file."""
        segment = cls(files, files.create(path))
        try:
            segment.write([JournalEntry(EntryKind.BEGIN, boot)])
        except OSError:
            segment.close()
            files.remove(path)
            raise
        return segment

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Write the whole batch at once. Raises `OSError` or `TooLong`; then none of it counts."""
        # protection: N11
        data, before = pack(entries, self._last + 1), self.size
        try:
            self._write_all(data)
        except OSError:
            self._last += self._undo(before, len(entries))
            raise
        self._last += len(entries)

    @property
    def entries(self) -> int:
        """Number of entries in the file, with those that later ones have outdated."""
        return self._last

    def truncate(self, size: int) -> None:
        self._files.truncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        self._files.sync(self._fd)

    def close(self) -> None:
        self._files.close(self._fd)

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:  # a disk that fills up takes a part first, and refuses the rest
            taken = self._files.write(self._fd, rest)
            # Counted as it goes: what cannot be truncated is there, and what comes behind it must not be truncated.
            self.size += taken
            rest = rest[taken:]

    def _undo(self, before: int, count: int) -> int:
        """Truncate what was written of a batch of `count`; return how many sequences it has used up all the same."""
        try:
            self.truncate(before)
        except OSError:
            # Whole frames of it may have stayed. They do no harm, but their sequences are used up: a second frame
            # with the same sequence would be ignored.
            return count
        return 0
