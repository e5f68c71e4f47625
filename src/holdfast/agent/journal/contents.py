"""Contents of a journal: the objects that may be in the kernel, by key. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.agent.journal import codec
from holdfast.agent.journal.codec import Body, ClaimEntry, Entry, Key
from holdfast.agent.journal.frames import EntryKind
from holdfast.reconcile import Owned


class KeyRegister:
    """Set of keys that can be walked in portions while keys come and go; the caller knows which are present.

    Copying the keys of a large fleet blocks everything else for as long as it takes to touch each of them (N15). So
    they are in a list of their own: a new key is appended, a removed one is dropped when the next walk passes it.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = list(keys)
        self._gone: set[Key] = set()
        """Keys that were removed since the last walk and are still in the list."""

    def add(self, key: Key) -> None:
        if key in self._gone:
            self._gone.remove(key)
        else:
            self._keys.append(key)

    def remove(self, key: Key) -> None:
        self._gone.add(key)

    def walk(self, portion: int) -> Generator[Sequence[Key], None, None]:
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


@dataclass(slots=True)
class JournalContents:
    """Objects that may be in the kernel: a key is in one of the two maps, and leaves only when the kernel does not have
    it.

    The newest object under a key stands for whatever occupies that place in the kernel. Objects that were read from a
    file are decoded when they are first asked for.
    """

    live: dict[Key, Body] = field(default_factory=dict)
    """Key → object."""
    deleting: dict[Key, Body] = field(default_factory=dict)
    """Key → object of every delete that was begun and is not done."""
    keys: KeyRegister = field(default_factory=KeyRegister)
    """Keys of both maps, for a compaction."""

    def changes(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the entries of a batch that change the contents."""
        changes: list[Entry] = []
        touched: set[Key] = set()
        for entry in entries:
            if entry.key in touched or not self._has(entry):
                touched.add(entry.key)
                changes.append(entry)
        return changes

    def apply(self, op: EntryKind, key: Key, body: Body) -> None:
        old = self.live.pop(key, None)
        if old is None:
            old = self.deleting.pop(key, None)
        if op is EntryKind.DONE:
            if old is not None:
                self.keys.remove(key)
            return
        if old is None:
            self.keys.add(key)
        (self.live if op is EntryKind.ADD else self.deleting)[key] = body

    def add_all(self, keys: Sequence[Key], bodies: Sequence[Body]) -> None:
        """Apply many additions without updating `keys`: call `register_keys` at the end."""
        self.live.update(zip(keys, bodies, strict=True))
        if self.deleting:
            for key in keys:
                self.deleting.pop(key, None)

    def register_keys(self) -> None:
        self.keys = KeyRegister([*self.live, *self.deleting])

    def entry(self, key: Key) -> Entry:
        """Entry that records the current state of this key."""
        body = self.live.get(key)
        if body is None:
            return ClaimEntry(EntryKind.DELETING, key, self.deleting[key])
        return ClaimEntry(EntryKind.ADD, key, body)

    def claims(self, keys: Sequence[ClaimKey]) -> Sequence[Owned[Claim] | None]:
        """Return the objects of these keys; None for one that is not known, or not of this release."""
        found = list(map(self.live.get, keys))
        if not self.deleting and set(map(type, found)) == {bytes}:  # a restart reads all for the first time
            decoded = codec.read_all(cast("list[bytes]", found))
            if decoded is not None:
                self.live.update(zip(keys, decoded, strict=True))
                return decoded
        return [body if isinstance(body, Owned) else self.claim(key) for key, body in zip(keys, found, strict=True)]

    def claim(self, key: ClaimKey) -> Owned[Claim] | None:
        """Return the object of this key; None if it is not known, or not of this release."""
        objects = self.live if key in self.live else self.deleting
        body = objects.get(key)
        if not isinstance(body, bytes):
            return body
        owned = codec.read(body)
        if owned is not None:
            objects[key] = owned
        return owned

    def claim_keys(self) -> list[ClaimKey]:
        """Return the keys that this release understands."""
        return [key for key in chain(self.live, self.deleting) if not isinstance(key, bytes)]

    def unreadable_keys(self) -> int:
        """Count the keys that this release does not understand."""
        return Counter(map(type, chain(self.live, self.deleting)))[bytes]

    def _has(self, entry: Entry) -> bool:
        op, key, body = entry
        if op is EntryKind.DONE:
            return key not in self
        known = (self.live if op is EntryKind.ADD else self.deleting).get(key)
        if known is None or known == body:
            return known is not None
        return codec.encoded_body(known) == codec.encoded_body(body)

    def __contains__(self, key: object) -> bool:
        return key in self.live or key in self.deleting

    def __len__(self) -> int:
        return len(self.live) + len(self.deleting)
