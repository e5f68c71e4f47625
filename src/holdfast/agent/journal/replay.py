"""Recall: what a journal tells, from its bytes alone, and how far it can be believed.

Nothing good is dropped because something beside it is bad. A journal is void only when it says itself that it is about
another boot of the kernel, whose state went with it; one that cannot say so any more counts.

The roll: keys that can be walked over a few at a time while others come and go.

To copy the keys of a large fleet keeps everything else waiting for as long as it takes to touch each of them (N15). So
they stand in a list of their own: who comes is added at its end, who goes is struck off when the next walk passes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from holdfast.agent.journal.frames import (
    OVERHEAD,
    Damage,
    EntryKind,
    JournalEntry,
    NotWhole,
    cut_short,
    read_whole,
    scan,
)


class KeyRegister:
    """Every key stands on it once. Whoever calls `enter` and `leave` knows which are present."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._keys = list(keys)
        self._gone: set[bytes] = set()
        """Who left since the last walk and still stands there."""

    def enter(self, key: bytes) -> None:
        if key in self._gone:
            self._gone.remove(key)
        else:
            self._keys.append(key)

    def leave(self, key: bytes) -> None:
        self._gone.add(key)

    def walk(self, portion: int) -> Generator[Sequence[bytes], None, None]:
        """All that stood there when it began, but for those that have left by the time it passes; `portion` at a time.

        One at a time; one that is given up has to be closed.
        """
        keys, kept, passed, end = self._keys, 0, 0, len(self._keys)
        try:
            while passed < end:
                some = keys[passed : min(passed + portion, end)]
                staying = [key for key in some if key not in self._gone]
                self._gone.difference_update(some)
                keys[kept : kept + len(staying)] = staying
                kept, passed = kept + len(staying), passed + len(some)
                yield staying
            while passed > kept:
                start = max(kept, passed - portion)
                del keys[start:passed]
                passed = start
                yield ()
        finally:
            del keys[kept:passed]


class JournalCondition(Enum):
    """In which state a journal was when it was opened."""

    ABSENT = "there was no journal"
    WHOLE = "the journal is whole"
    TORN = "the last write to the journal was interrupted"
    DAMAGED = "the journal is damaged"
    OTHER_BOOT = "the journal is about another boot of this machine"


@dataclass(slots=True)
class JournalContents:
    """What may be in the kernel: a key is in one of the two, and leaves only when the kernel has let go.

    The newest object under a key stands for whatever occupies that place in the kernel.
    """

    live: dict[bytes, bytes] = field(default_factory=dict)
    """Key → object."""
    going: dict[bytes, bytes] = field(default_factory=dict)
    """Key → object of those that were being removed when last heard of."""
    size: int = 0
    """Bytes that it takes to write all this down."""
    roll: KeyRegister = field(default_factory=KeyRegister)
    """The keys of both, for a compaction."""

    def news(self, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
        """Those of a batch that change what is remembered."""
        news: list[JournalEntry] = []
        touched: set[bytes] = set()
        for entry in entries:
            if entry.key in touched or not self._holds(entry):
                touched.add(entry.key)
                news.append(entry)
        return news

    def take(self, op: EntryKind, key: bytes, body: bytes) -> None:
        old = self.live.pop(key, None)
        if old is None:
            old = self.going.pop(key, None)
        if old is not None:
            self.size -= OVERHEAD + len(key) + len(old)
        if op is EntryKind.DONE:
            if old is not None:
                self.roll.leave(key)
            return
        if old is None:
            self.roll.enter(key)
        (self.live if op is EntryKind.ADD else self.going)[key] = body
        self.size += OVERHEAD + len(key) + len(body)

    def add_all(self, keys: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """The same as `take` of so many additions, but for size and roll: `settle` when all is told."""
        self.live.update(zip(keys, bodies, strict=True))
        if self.going:
            for key in keys:
                self.going.pop(key, None)

    def settle(self) -> None:
        """Finds size and roll."""
        self.roll = KeyRegister([*self.live, *self.going])
        self.size = sum(
            OVERHEAD * len(objects) + sum(map(len, objects)) + sum(map(len, objects.values()))
            for objects in (self.live, self.going)
        )

    def entry(self, key: bytes) -> JournalEntry:
        """How to write down what is known of this key now."""
        body = self.live.get(key)
        return (
            JournalEntry(EntryKind.INTENT, key, self.going[key])
            if body is None
            else JournalEntry(EntryKind.ADD, key, body)
        )

    def _holds(self, entry: JournalEntry) -> bool:
        op, key, body = entry
        if op is EntryKind.DONE:
            return key not in self.live and key not in self.going
        return (self.live if op is EntryKind.ADD else self.going).get(key) == body

    def __len__(self) -> int:
        return len(self.live) + len(self.going)


@dataclass(slots=True)
class Replay:
    """What one file tells."""

    remembered: JournalContents = field(default_factory=JournalContents)
    boots: set[bytes] = field(default_factory=set)
    """The boots that it says it is about; empty when it cannot tell any more."""
    bad: list[Damage] = field(default_factory=list)
    missing: int = 0
    """Records that are certainly gone: sequences are counted without a gap."""
    last: int = 0
    """The last sequence."""
    marks: int = 0
    """Marks of a beginning and an end; a whole file has one of each."""
    torn: bool = False
    """The bad bytes are an interrupted write at the end and nothing else."""

    def take(self, op: EntryKind, key: bytes, body: bytes) -> None:
        if op is EntryKind.BEGIN or op is EntryKind.END:
            self.boots.add(key)
            self.marks += 1
        else:
            self.remembered.take(op, key, body)


def recall(data: bytes) -> Replay:
    """Raises `Newer`."""
    try:
        return _recall_whole(data)
    except NotWhole:
        return _recall_damaged(data)


def _recall_whole(data: bytes) -> Replay:
    """Of a file as we wrote it, which nearly every file is. Raises `NotWhole`."""
    told = Replay()
    for run in read_whole(data):
        told.last += len(run.ops)
        if run.ops.count(EntryKind.ADD) == len(run.ops):
            told.remembered.add_all(run.keys, run.bodies)
        else:
            for op, key, body in zip(*run, strict=True):
                told.take(EntryKind(op), key, body)
    told.remembered.settle()
    return told


def _recall_damaged(data: bytes) -> Replay:
    told = Replay()
    for found in scan(data):
        if isinstance(found, Damage):
            told.bad.append(found)
            continue
        op, key, body, sequence = found
        told.missing += sequence - told.last - 1
        told.last = sequence
        told.take(op, key, body)
    told.torn = len(told.bad) == 1 and told.bad[0].end == len(data) and cut_short(data[told.bad[0].start :])
    return told


def judge(told: Replay, boot: bytes) -> JournalCondition:
    """What to make of it in this boot of the machine."""
    if told.boots and boot not in told.boots:
        return JournalCondition.OTHER_BOOT
    if told.missing or told.marks < 2 or (told.bad and not told.torn):
        return JournalCondition.DAMAGED
    return JournalCondition.TORN if told.bad else JournalCondition.WHOLE
