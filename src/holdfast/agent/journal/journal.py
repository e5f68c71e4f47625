"""Journal: the objects that this host's agent may have put into the kernel, persisted across crashes of the agent.

    journal = Journal.open(path, boot_id)       # log journal.opened.sentence; raises JournalUnreadable
    journal.add([(key, object)])                # then the kernel
    journal.begin_delete([(key, object)])       # then the kernel, by every handler; then
    journal.done([key])
    if journal.wants_compaction: await journal.compact()

Keys and objects are claims, or bytes that `codec` has not decoded or cannot decode. A key names what occupies the
kernel, so that the newest object under it stands for whatever is there. `live` and `deleting` are what may be there
now; an object leaves them, and the disk, only by `done` (write ahead). Before continuing with an object in `deleting`
after a start, check whether it is wanted again. An entry that changes nothing is not written.

Promises: when a call returns, its entry outlives this process; when it raises, nothing has changed, and the kernel must
not be touched. No call waits for a compaction: that writes a second file in small slices and swaps it in. Opening copes
with any bytes: good entries are kept, bad bytes are quarantined and reported. It stops, and changes nothing, only where
the file cannot be read at all or is of a newer release. One process at a time, one thread; the caller holds a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from holdfast.agent.journal.codec import Body, ClaimEntry, Entry, Key, encoded
from holdfast.agent.journal.compaction import JournalCompaction
from holdfast.agent.journal.contents import JournalContents
from holdfast.agent.journal.files import Files
from holdfast.agent.journal.frames import EntryKind, NewerFrame
from holdfast.agent.journal.open import OpenedJournal, open_segment
from holdfast.agent.journal.segment import Segment

SMALLEST_TO_COMPACT = 1 << 20
"""A journal up to this size is not worth compacting."""

Offload = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs blocking work (a disk sync, freeing memory) outside the event loop."""


class JournalUnreadable(Exception):
    """The journal cannot be opened now, and was left as it is. The message is one sentence for the operator."""


class JournalUnwritable(Exception):
    """Nothing was written, so nothing may be changed. The message is one sentence for the operator."""


class Journal:
    def __init__(
        self,
        files: Files,
        path: Path,
        boot: bytes,
        segment: Segment,
        contents: JournalContents,
        opened: OpenedJournal,
    ) -> None:
        """Use `open` instead."""
        self._files = files
        self._path = path
        self._boot = boot
        self._segment = segment
        self._contents = contents
        self._compaction: JournalCompaction | None = None
        self._compact_above = SMALLEST_TO_COMPACT
        self.opened = opened

    @classmethod
    def open(cls, path: Path, boot_id: str, *, files: Files | None = None) -> Journal:
        """Open the journal of this boot of the machine, or begin it. Raises `JournalUnreadable`."""
        if not boot_id:
            raise ValueError("boot id is empty: every journal would look like that of another boot")
        files, boot = files or Files(), boot_id.encode()
        try:
            return cls(files, path, boot, *open_segment(files, path, boot))
        except NewerFrame as newer:
            raise JournalUnreadable(
                f"the journal {path} was written by a newer release ({newer}): run that release again, or move the "
                "file away; objects of ours in the kernel are then found by their tags"
            ) from newer
        except OSError as error:
            raise JournalUnreadable(
                f"cannot open the journal {path} ({error.strerror}): it must be a file in a folder of the agent's own"
            ) from error

    @property
    def live(self) -> Mapping[Key, Body]:
        """Key → object of everything that may be in the kernel and is not being deleted."""
        return MappingProxyType(self._contents.live)

    @property
    def deleting(self) -> Mapping[Key, Body]:
        """Key → object of every delete that was begun and is not done."""
        return MappingProxyType(self._contents.deleting)

    @property
    def contents(self) -> JournalContents:
        """Objects that may be in the kernel; change them by writing entries."""
        return self._contents

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._segment.size

    def add(self, objects: Iterable[tuple[Key, Body]]) -> None:
        """Record that these may be in the kernel from now on. This cancels a delete that was begun."""
        self.write([ClaimEntry(EntryKind.ADD, key, body) for key, body in objects])

    def begin_delete(self, objects: Iterable[tuple[Key, Body]]) -> None:
        """Record that these are about to be deleted, including objects known only from the kernel's tags."""
        self.write([ClaimEntry(EntryKind.DELETING, key, body) for key, body in objects])

    def done(self, keys: Iterable[Key]) -> None:
        """Record that these are gone from the kernel, acknowledged by every handler."""
        self.write([ClaimEntry(EntryKind.DONE, key) for key in keys])

    def write(self, entries: Sequence[Entry]) -> None:
        """Write any mix of the three, in this order, in one write. Raises `JournalUnwritable` or `frames.TooLong`."""
        changes = self._contents.changes(entries)
        if not changes:
            return
        frames = list(map(encoded, changes))
        try:
            self._segment.write(frames)
        except OSError as error:
            raise JournalUnwritable(
                f"cannot write to the journal {self._path} ({error.strerror}): the kernel is not changed until "
                f"that works; free space on the file system of {self._path.parent}"
            ) from error
        if self._compaction is not None:
            self._compaction.append(frames)
        for op, key, body in changes:
            self._contents.apply(op, key, body)

    @property
    def wants_compaction(self) -> bool:
        """Return whether more than half of the file is out of date."""
        is_outdated = self._segment.entries > 2 * len(self._contents)
        return is_outdated and self._compaction is None and self.size > self._compact_above

    async def compact(self, offload: Offload = asyncio.to_thread) -> None:
        """Compact the journal while events go on. Raises `JournalUnwritable`; the journal then continues as it was.

        A call during a compaction returns at once. With the default, have the loop's pool start its thread before
        events flow (`await asyncio.to_thread(int)`): starting one waits until it runs.
        """
        if self._compaction is not None:
            return
        try:
            self._compaction = JournalCompaction(self._files, self._path, self._boot, self._contents)
            await self._replace_with(self._compaction, offload)
        except OSError as error:
            self._compact_above = self.size + self.size // 4
            raise JournalUnwritable(
                f"cannot compact the journal {self._path} ({error.strerror}): it is used as it is and grows; "
                f"free space on the file system of {self._path.parent}"
            ) from error

    def close(self) -> None:
        """Close the file; its contents stay. Cancel a compaction first."""
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
            compaction.stop()
            if not installed:
                await offload(compaction.abandon)
        old, self._segment = self._segment, compaction.segment
        self._compact_above = SMALLEST_TO_COMPACT
        await offload(old.close)  # frees the old file's memory, which takes milliseconds if it is large
        await offload(compaction.sync_folder)
