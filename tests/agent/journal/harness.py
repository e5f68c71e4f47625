"""A small journal with every kind of entry, and the contents of any part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from holdfast.agent.journal.codec import Body, Key
from holdfast.agent.journal.contents import JournalContents
from holdfast.agent.journal.frames import EntryKind, FoundEntry, JournalEntry, pack

BOOT = "6f1c"
ENTRIES = (
    JournalEntry(EntryKind.BEGIN, BOOT.encode()),
    JournalEntry(EntryKind.ADD, b"10.0.0.1/32", b"via a"),
    JournalEntry(EntryKind.ADD, b"10.0.0.2/32", b"via b"),
    JournalEntry(EntryKind.END, BOOT.encode()),
    JournalEntry(EntryKind.ADD, b"10.0.0.3/32", b"via c"),
    JournalEntry(EntryKind.DELETING, b"10.0.0.1/32", b"via a"),
    JournalEntry(EntryKind.DONE, b"10.0.0.1/32"),
    JournalEntry(EntryKind.ADD, b"10.0.0.2/32", b"via d"),
    JournalEntry(EntryKind.DELETING, b"10.0.0.3/32", b"via c"),
    JournalEntry(EntryKind.ADD, b"10.0.0.1/32", b"via e"),
)
FRAMES = tuple(pack([entry], sequence) for sequence, entry in enumerate(ENTRIES, 1))
WHOLE = b"".join(FRAMES)


State = tuple[dict[Key, Body], dict[Key, Body]]
"""Live objects, and those being deleted."""


def state(remembered: JournalContents) -> State:
    return remembered.live, remembered.deleting


def told_by(entries: Iterable[JournalEntry | FoundEntry]) -> State:
    """Contents after these entries, computed in the simplest way."""
    live: dict[Key, Body] = {}
    going: dict[Key, Body] = {}
    for op, key, body, *_ in entries:
        if op in (EntryKind.ADD, EntryKind.DELETING, EntryKind.DONE):
            live.pop(key, None)
            going.pop(key, None)
        if op is EntryKind.ADD:
            live[key] = body
        if op is EntryKind.DELETING:
            going[key] = body
    return live, going


def frame_at(offset: int) -> int:
    """The number of the frame that this byte of the sample belongs to."""
    for number, frame in enumerate(FRAMES):
        if offset < len(frame):
            return number
        offset -= len(frame)
    raise IndexError(offset)


async def inline(work: Callable[[], None]) -> None:
    """Runs the work inline."""
    work()


async def turn() -> None:
    await asyncio.sleep(0)
