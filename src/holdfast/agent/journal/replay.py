"""Replays a journal: its contents, from its bytes alone, and how far they can be trusted. Pure.

Intact entries are kept even next to damaged ones. A journal is void only when its boot id is that of another boot of
the kernel, whose state is gone; a journal without a readable boot id is used.
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
    """Set of keys that can be walked in portions while keys come and go; the caller knows which are present.

    Copying the keys of a large fleet blocks everything else for as long as it takes to touch each of them (N15). So
    they are in a list of their own: a new key is appended, a removed one is dropped when the next walk passes it.
    """

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._keys = list(keys)
        self._gone: set[bytes] = set()
        """Keys that were removed since the last walk and are still in the list."""

    def add(self, key: bytes) -> None:
        if key in self._gone:
            self._gone.remove(key)
        else:
            self._keys.append(key)

    def remove(self, key: bytes) -> None:
        self._gone.add(key)

    def walk(self, portion: int) -> Generator[Sequence[bytes], None, None]:
        """Yield the keys that were there when the walk began, except those removed before it passes; `portion` at a
        time.

        One walk at a time; one that is abandoned has to be closed.
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
    """Condition of a journal when it was opened."""

    ABSENT = "there was no journal"
    WHOLE = "the journal is whole"
    TORN = "the last write to the journal was interrupted"
    DAMAGED = "the journal is damaged"
    OTHER_BOOT = "the journal is of another boot of this machine"


@dataclass(slots=True)
class JournalContents:
    """Objects that may be in the kernel: a key is in one of the two maps, and leaves only when the kernel does not have
    it.

    The newest object under a key stands for whatever occupies that place in the kernel.
    """

    live: dict[bytes, bytes] = field(default_factory=dict)
    """Key → object."""
    deleting: dict[bytes, bytes] = field(default_factory=dict)
    """Key → object of every delete that was begun and is not done."""
    size: int = 0
    """Bytes that it takes to write all this down."""
    keys: KeyRegister = field(default_factory=KeyRegister)
    """Keys of both maps, for a compaction."""

    def changes(self, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
        """Return the entries of a batch that change the contents."""
        changes: list[JournalEntry] = []
        touched: set[bytes] = set()
        for entry in entries:
            if entry.key in touched or not self._has(entry):
                touched.add(entry.key)
                changes.append(entry)
        return changes

    def apply(self, op: EntryKind, key: bytes, body: bytes) -> None:
        old = self.live.pop(key, None)
        if old is None:
            old = self.deleting.pop(key, None)
        if old is not None:
            self.size -= OVERHEAD + len(key) + len(old)
        if op is EntryKind.DONE:
            if old is not None:
                self.keys.remove(key)
            return
        if old is None:
            self.keys.add(key)
        (self.live if op is EntryKind.ADD else self.deleting)[key] = body
        self.size += OVERHEAD + len(key) + len(body)

    def add_all(self, keys: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """Apply many additions without updating `size` and `keys`: call `count` at the end."""
        self.live.update(zip(keys, bodies, strict=True))
        if self.deleting:
            for key in keys:
                self.deleting.pop(key, None)

    def count(self) -> None:
        """Compute `size` and `keys`."""
        self.keys = KeyRegister([*self.live, *self.deleting])
        self.size = sum(
            OVERHEAD * len(objects) + sum(map(len, objects)) + sum(map(len, objects.values()))
            for objects in (self.live, self.deleting)
        )

    def entry(self, key: bytes) -> JournalEntry:
        """Entry that records the current state of this key."""
        body = self.live.get(key)
        return (
            JournalEntry(EntryKind.DELETING, key, self.deleting[key])
            if body is None
            else JournalEntry(EntryKind.ADD, key, body)
        )

    def _has(self, entry: JournalEntry) -> bool:
        op, key, body = entry
        if op is EntryKind.DONE:
            return key not in self.live and key not in self.deleting
        return (self.live if op is EntryKind.ADD else self.deleting).get(key) == body

    def __len__(self) -> int:
        return len(self.live) + len(self.deleting)


@dataclass(slots=True)
class Replay:
    """Findings in one file."""

    contents: JournalContents = field(default_factory=JournalContents)
    boots: set[bytes] = field(default_factory=set)
    """Boots that it says it describes; empty when it cannot say any more."""
    damage: list[Damage] = field(default_factory=list)
    missing: int = 0
    """Entries that are certainly lost: sequences have no gaps."""
    last: int = 0
    """Last sequence."""
    marks: int = 0
    """Marks of a beginning and an end; a whole file has one of each."""
    torn: bool = False
    """The damage is an interrupted write at the end and nothing else."""

    def apply(self, op: EntryKind, key: bytes, body: bytes) -> None:
        if op is EntryKind.BEGIN or op is EntryKind.END:
            self.boots.add(key)
            self.marks += 1
        else:
            self.contents.apply(op, key, body)


def replay(data: bytes) -> Replay:
    """Raise `NewerFrame`."""
    try:
        return _replay_whole(data)
    except NotWhole:
        return _replay_damaged(data)


def _replay_whole(data: bytes) -> Replay:
    """Replay a file as we wrote it, which nearly every file is. Raises `NotWhole`."""
    found = Replay()
    for run in read_whole(data):
        found.last += len(run.ops)
        if run.ops.count(EntryKind.ADD) == len(run.ops):
            found.contents.add_all(run.keys, run.bodies)
        else:
            for op, key, body in zip(*run, strict=True):
                found.apply(EntryKind(op), key, body)
    found.contents.count()
    return found


def _replay_damaged(data: bytes) -> Replay:
    found = Replay()
    for part in scan(data):
        if isinstance(part, Damage):
            found.damage.append(part)
            continue
        op, key, body, sequence = part
        found.missing += sequence - found.last - 1
        found.last = sequence
        found.apply(op, key, body)
    found.torn = (
        len(found.damage) == 1 and found.damage[0].end == len(data) and cut_short(data[found.damage[0].start :])
    )
    return found


def judge(found: Replay, boot: bytes) -> JournalCondition:
    """Decide the condition of the journal in this boot of the machine."""
    if found.boots and boot not in found.boots:
        return JournalCondition.OTHER_BOOT
    if found.missing or found.marks < 2 or (found.damage and not found.torn):
        return JournalCondition.DAMAGED
    return JournalCondition.TORN if found.damage else JournalCondition.WHOLE
