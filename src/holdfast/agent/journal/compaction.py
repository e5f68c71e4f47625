"""Compaction: the journal written anew with what is true now, in slices, while events go on.

Each slice writes down its keys as they are known at that moment, and every event that comes meanwhile is written behind
it as well; so wherever an event falls between the slices, what the new file tells in the end is right. The old file
stays the journal until the new one is complete, on the disk, and renamed over it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from holdfast.agent.journal.files import Files
from holdfast.agent.journal.frames import EntryKind, JournalEntry
from holdfast.agent.journal.replay import JournalContents
from holdfast.agent.journal.segment import Segment

SLICE = 128
"""Objects per slice: well under a millisecond for objects of 1 kB."""


class JournalCompaction:
    def __init__(self, files: Files, path: Path, boot: bytes, remembered: JournalContents) -> None:
        """Begins the new file. Raises `OSError`."""
        self._files = files
        self._boot = boot
        self._path = unfinished(path)
        self._final = path
        self._remembered = remembered
        self._walk = walk_over(remembered)
        self.segment = Segment.create(files, self._path, boot)
        self.error: OSError | None = None
        """Why it cannot be completed; found out in the middle of an event, which is not to suffer from it."""

    def slices(self) -> Iterator[None]:
        """Writes the new file, and comes back after each slice. Raises `OSError`."""
        for keys in self._walk:
            self._check()
            self.segment.write([self._remembered.entry(key) for key in keys])
            yield
        self._check()
        self.segment.write([JournalEntry(EntryKind.END, self._boot)])

    def follow(self, entries: Sequence[JournalEntry]) -> None:
        """An event, already in the journal, goes behind what is written here."""
        if self.error is None:
            try:
                self.segment.write(entries)
            except OSError as error:
                self.error = error

    def install(self) -> None:
        """From now on this is the journal; the segment goes on. Raises `OSError`."""
        self._check()
        self._files.rename(self._path, self._final)

    def sync_folder(self) -> None:
        self._files.sync_folder(self._final.parent)

    def end(self) -> None:
        """No further slice is asked for."""
        self._walk.close()

    def abandon(self) -> None:
        self.segment.close()
        self._files.remove(self._path)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


def unfinished(path: Path) -> Path:
    """Where the new file is until it is complete. One that a killed process has left there is worth nothing."""
    return path.with_name(path.name + ".new")


def walk_over(remembered: JournalContents) -> Generator[Sequence[bytes], None, None]:
    # N15: what is written between two events is bounded, however much is known.
    return remembered.roll.walk(SLICE)
