"""Values that a watch remembers, to know the store's history by them."""

from __future__ import annotations

import random

from holdfast.store.api import Entry, Event, Snapshot
from holdfast.store.watch.continuity import LARGEST, LISTED, RECENT, KnownValues


def known_values() -> KnownValues:
    return KnownValues(random.Random(7).sample)


def entries(first: int, count: int, value: bytes = b"v") -> list[Entry]:
    return [Entry(b"%05d" % number, value, 1, number + 2) for number in range(first, first + count)]


def test_every_part_of_a_list_has_its_share() -> None:
    known = known_values()
    for start in range(0, 20_000, 5_000):
        known.add_part(Snapshot(1, entries(start, 5_000), first=not start, more=True), {})
    kept = [int(key) // 5_000 for key in known.entries()]
    assert len(kept) == LISTED
    assert all(LISTED // 8 < kept.count(part) < LISTED // 2 for part in range(4))


def test_a_list_with_all_values_forgets_those_before_it() -> None:
    known = known_values()
    known.add_part(Snapshot(1, entries(0, 10)), {})
    known.add_part(Snapshot(2, entries(50, 3)), {})
    assert sorted(known.entries()) == [b"00050", b"00051", b"00052"]


def test_a_list_of_changes_keeps_what_the_reader_still_holds() -> None:
    known = known_values()
    known.add_part(Snapshot(1, entries(0, 3)), {})
    held = {b"00000": 2, b"00001": 99}
    known.add_part(Snapshot(2, [Entry(b"00002", b"new", 1, 50)], unchanged=[b"00000"]), held)
    assert {key: entry.mod_revision for key, entry in known.entries().items()} == {b"00000": 2, b"00002": 50}


def test_of_recent_changes_the_last_of_each_key_counts() -> None:
    known = known_values()
    for revision in range(3 * RECENT):
        known.recent.append(Event(Entry(b"%d" % (revision % 4), b"", 1, revision)))
    assert sorted(entry.mod_revision for entry in known.entries().values()) == list(range(3 * RECENT - 4, 3 * RECENT))


def test_large_values_and_deletes_are_not_kept() -> None:
    known = known_values()
    known.add_part(Snapshot(1, entries(0, 5, b"x" * (LARGEST + 1))), {})
    known.recent.append(Event(Entry(b"a", b"x" * (LARGEST + 1), 1, 5)))
    known.recent.append(Event.delete(b"b", 6))
    assert not known.entries()
