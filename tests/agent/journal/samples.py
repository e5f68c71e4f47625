"""A small journal with every operation in it, and what any part of it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from holdfast.agent.journal.frames import Entry, Op, Record, pack
from holdfast.agent.journal.replay import Remembered

BOOT = "6f1c"
ENTRIES = (
    Entry(Op.BEGIN, BOOT.encode()),
    Entry(Op.ADD, b"10.0.0.1/32", b"via a"),
    Entry(Op.ADD, b"10.0.0.2/32", b"via b"),
    Entry(Op.END, BOOT.encode()),
    Entry(Op.ADD, b"10.0.0.3/32", b"via c"),
    Entry(Op.INTENT, b"10.0.0.1/32", b"via a"),
    Entry(Op.DONE, b"10.0.0.1/32"),
    Entry(Op.ADD, b"10.0.0.2/32", b"via d"),
    Entry(Op.INTENT, b"10.0.0.3/32", b"via c"),
    Entry(Op.ADD, b"10.0.0.1/32", b"via e"),
)
FRAMES = tuple(pack([entry], sequence) for sequence, entry in enumerate(ENTRIES, 1))
WHOLE = b"".join(FRAMES)


def state(remembered: Remembered) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    return remembered.live, remembered.going


def told_by(entries: Iterable[Entry | Record]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """What these leave behind, found out in the plainest way."""
    live: dict[bytes, bytes] = {}
    going: dict[bytes, bytes] = {}
    for op, key, body, *_ in entries:
        if op in (Op.ADD, Op.INTENT, Op.DONE):
            live.pop(key, None)
            going.pop(key, None)
        if op is Op.ADD:
            live[key] = body
        if op is Op.INTENT:
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
    """Offloads to nowhere."""
    work()


async def turn() -> None:
    await asyncio.sleep(0)
