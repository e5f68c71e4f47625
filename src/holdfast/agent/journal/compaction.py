"""Compaction: rewrites the journal with its current contents only, in slices, while events go on.

Each slice writes its keys as they are at that moment, and every event that happens meanwhile is appended as well; so
wherever an event falls between the slices, the new file is right in the end. The old file stays the journal until the
new one is complete, on disk, and renamed over it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from holdfast.agent.journal.codec import Key, encoded
from holdfast.agent.journal.contents import JournalContents
from holdfast.agent.journal.files import Files
from holdfast.agent.journal.frames import EntryKind, JournalEntry
from holdfast.agent.journal.segment import Segment

SLICE = 128
"""Objects per slice: well under a millisecond for objects of 1 kB."""


class JournalCompaction:
    def __init__(self, files: Files, path: Path, boot: bytes, contents: JournalContents) -> None:
        """Begin the new file. Raises `OSError`."""
        self._files = files
        self._boot = boot
        self._path = unfinished(path)
        self._final = path
        self._contents = contents
        self._key_slices = key_slices(contents)
        self.segment = Segment.create(files, self._path, boot)
        self.error: OSError | None = None
        """Reason why it cannot be completed, found while an event was appended; the event must not fail because of
        it."""

    def slices(self) -> Iterator[None]:
        """Write the new file, yielding after each slice. Raises `OSError`."""
        for keys in self._key_slices:
            self._raise_error()
            self.segment.write([encoded(self._contents.entry(key)) for key in keys])
            yield
        self._raise_error()
        self.segment.write([JournalEntry(EntryKind.END, self._boot)])

    def append(self, entries: Sequence[JournalEntry]) -> None:
        """Append an event that is already in the journal."""
        if self.error is None:
            try:
                self.segment.write(entries)
            except OSError as error:
                self.error = error

    def install(self) -> None:
        """Make this file the journal; its segment is used from now on. Raises `OSError`."""
        self._raise_error()
        self._files.rename(self._path, self._final)

    def sync_folder(self) -> None:
        self._files.sync_folder(self._final.parent)

    def stop(self) -> None:
        """End the walk over the keys."""
        self._key_slices.close()

    def abandon(self) -> None:
        self.segment.close()
        self._files.remove(self._path)

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error


def unfinished(path: Path) -> Path:
    """Path of the new file until it is complete. One that a killed process left there is worthless."""
    return path.with_name(path.name + ".new")


def key_slices(contents: JournalContents) -> Generator[Sequence[Key], None, None]:
    # protection: N15: bounds what is written between two events, however large the journal is.
    return contents.keys.walk(SLICE)
