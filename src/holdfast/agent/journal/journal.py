"""The journal: what this host's agent may have put into the kernel, remembered through every death of the agent.

    journal = Journal.open(path, boot_id)       # log journal.opening.sentence; raises JournalUnreadable
    journal.add([(key, object)])                # then the kernel
    journal.intend([(key, object)])             # then the kernel, by every handler; then
    journal.done([key])
    if journal.wants_compaction: await journal.compact()

Keys and objects are bytes. A key names what occupies the kernel, so that the newest object under it stands for whatever
is there. `live` and `going` are what may be there now; an object leaves them, and the disk, only by `done` (write
ahead). Objects in `going` were being removed when last heard of: look at who wants them again before going on. What a
key's object already is, is not written a second time.

Promises: when a call returns, it outlives this process; when it raises, nothing has changed, and the kernel must not be
touched. No call waits for a compaction: that writes a second file in small slices and swaps it in. Opening copes with
any bytes: what is good is kept, what is bad is put aside and said. It stops, and changes nothing, only where the file
cannot be read at all or is of a newer release. One process at a time, one thread; the caller holds a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from holdfast.agent.journal.compaction import JournalCompaction
from holdfast.agent.journal.files import Files
from holdfast.agent.journal.frames import EntryKind, JournalEntry, NewerFrame
from holdfast.agent.journal.open import OpenedJournal, open_segment
from holdfast.agent.journal.replay import JournalContents
from holdfast.agent.journal.segment import Segment

SMALLEST_TO_COMPACT = 1 << 20
"""A journal up to this size is not worth the work."""

Offload = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs what may block (a disk's sync, giving back memory) beside the event loop."""


class JournalUnreadable(Exception):
    """The journal cannot be opened now. It was left as it is. The message is one sentence for the operator."""


class JournalUnwritable(Exception):
    """Nothing was written, so nothing may be done. The message is one sentence for the operator."""


class Journal:
    def __init__(
        self,
        files: Files,
        path: Path,
        boot: bytes,
        segment: Segment,
        remembered: JournalContents,
        opening: OpenedJournal,
    ) -> None:
        """Made by `open`."""
        self._files = files
        self._path = path
        self._boot = boot
        self._segment = segment
        self._remembered = remembered
        self._compaction: JournalCompaction | None = None
        self._compact_above = SMALLEST_TO_COMPACT
        self.opening = opening

    @classmethod
    def open(cls, path: Path, boot_id: str, *, files: Files | None = None) -> Journal:
        """Opens the journal of this boot of the machine, or begins it. Raises `JournalUnreadable`."""
        if not boot_id:
            raise ValueError("without the boot id every journal would look like that of another boot")
        files, boot = files or Files(), boot_id.encode()
        try:
            return cls(files, path, boot, *open_segment(files, path, boot))
        except NewerFrame as newer:
            raise JournalUnreadable(
                f"the journal {path} was written by a newer release ({newer}): run that release again, or move the "
                "file away and let the kernel's own tags tell what is ours"
            ) from newer
        except OSError as error:
            raise JournalUnreadable(
                f"cannot open the journal {path} ({error.strerror}): it has to be a file in a folder of the agent's own"
            ) from error

    @property
    def live(self) -> Mapping[bytes, bytes]:
        """Key → object of all that may be in the kernel and is not being removed."""
        return MappingProxyType(self._remembered.live)

    @property
    def going(self) -> Mapping[bytes, bytes]:
        """Key → object of all whose removal was begun and not done."""
        return MappingProxyType(self._remembered.going)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._segment.size

    def add(self, objects: Iterable[tuple[bytes, bytes]]) -> None:
        """These may be in the kernel from now on. A removal that was begun is called off by it."""
        self.write([JournalEntry(EntryKind.ADD, key, body) for key, body in objects])

    def intend(self, objects: Iterable[tuple[bytes, bytes]]) -> None:
        """These are about to be removed, also if they are known only from the kernel's own tags."""
        self.write([JournalEntry(EntryKind.INTENT, key, body) for key, body in objects])

    def done(self, keys: Iterable[bytes]) -> None:
        """The kernel has let go of these: every handler said so."""
        self.write([JournalEntry(EntryKind.DONE, key) for key in keys])

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Any mix of the three, in this order, as one write. Raises `JournalUnwritable` or `frames.TooLong`."""
        news = self._remembered.news(entries)
        if not news:
            return
        try:
            self._segment.write(news)
        except OSError as error:
            raise JournalUnwritable(
                f"cannot write to the journal {self._path} ({error.strerror}): nothing is changed in the kernel before "
                f"that works; make room on the file system of {self._path.parent}"
            ) from error
        if self._compaction is not None:
            self._compaction.follow(news)
        for op, key, body in news:
            self._remembered.take(op, key, body)

    @property
    def wants_compaction(self) -> bool:
        """Whether more than half of the file is about what is no longer so."""
        return self._compaction is None and self.size > max(2 * self._remembered.size, self._compact_above)

    async def compact(self, offload: Offload = asyncio.to_thread) -> None:
        """Writes the journal anew while events go on. Raises `JournalUnwritable`; the journal goes on as it was.

        Calls while one is at work return at once. With the default, have the loop's pool start its thread before events
        flow (`await asyncio.to_thread(int)`): starting one waits until it runs.
        """
        if self._compaction is not None:
            return
        try:
            self._compaction = JournalCompaction(self._files, self._path, self._boot, self._remembered)
            await self._replace_with(self._compaction, offload)
        except OSError as error:
            self._compact_above = self.size + self.size // 4
            raise JournalUnwritable(
                f"cannot write the journal {self._path} anew ({error.strerror}): it goes on and grows; "
                f"make room on the file system of {self._path.parent}"
            ) from error

    def close(self) -> None:
        """Changes nothing of what is remembered. End a compaction first, by cancelling it."""
        self._segment.close()

    async def _replace_with(self, compaction: JournalCompaction, offload: Offload) -> None:
        installed = False
        try:
            for _ in compaction.slices():
                await asyncio.sleep(0)
            await offload(compaction.segment.sync)
            compaction.install()
            installed = True
        finally:
            self._compaction = None
            compaction.end()
            if not installed:
                await offload(compaction.abandon)
        old, self._segment = self._segment, compaction.segment
        self._compact_above = SMALLEST_TO_COMPACT
        await offload(old.close)  # gives back the old file's memory, which takes milliseconds where there is much
        await offload(compaction.sync_folder)
