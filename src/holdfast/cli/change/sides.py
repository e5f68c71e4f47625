"""Store and inventory of one region, object by object: what is new, changed, moved or gone in the store. Pure.

An object is one individual on both sides, whatever its key: an endpoint on another host has moved, it is not a new one.
What was edited or deleted in the inventory after a given revision is left out: there the inventory is known to be newer
than the store. The store must be read before the inventory, so that an edit in between is seen as one (C36).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from holdfast.inventory.api import Row, Witness
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.kinds import KINDS, SERVING, Thing, name_of
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry

_DELETED_FIRST = (*reversed(SERVING), MIGRATION, ENDPOINT)
"""Dependents go before the objects that come in, because they release addresses; hosts and networks go last."""


class Divergence(Enum):
    """Difference of one object, seen from the inventory."""

    NEW = "only in the store"
    CHANGED = "different in the store"
    MOVED = "at another key in the store"
    GONE = "only in the inventory"


@dataclass(frozen=True, slots=True)
class Difference:
    """One object that differs: its entry in the store, its row in the inventory, or both."""

    how: Divergence
    kind: Kind[Any, Any]
    name: str
    entry: Entry | None = None
    row: Row | None = None
    thing: Thing | None = None
    """The object in the store."""

    @property
    def title(self) -> str:
        return f"{self.kind.name} {self.name}"


@dataclass(frozen=True, slots=True)
class Unusable:
    """An entry of the store that cannot be compared, and why. `contradicts` the inventory: it has the object under a
    key that the store does not have, so one of the two is wrong about it."""

    title: str
    why: str
    contradicts: bool = False


@dataclass(frozen=True)
class Comparison:
    """All objects of both sides. `not_ours` counts keys under our prefixes that no inventory decides about."""

    differences: Sequence[Difference] = ()
    unusable: Sequence[Unusable] = ()
    same: int = 0
    not_ours: int = 0
    edited: int = 0
    """Objects left out because the inventory is newer."""
    deleted: Mapping[str, Witness] = field(default_factory=dict)
    """Objects left out because the inventory recorded their delete, by title."""

    def of(self, how: Divergence) -> Sequence[Difference]:
        return [one for one in self.differences if one.how is how]


Individual = tuple[str, str]


def compare(
    layout: RegionKeys,
    entries: Iterable[Entry],
    rows: Iterable[Row],
    *,
    ignored: Collection[bytes] = (),
    edited_after: int | None = None,
) -> Comparison:
    """Compare the two sides. Ignored keys count as not ours; objects that the inventory changed after `edited_after`
    are left out."""
    there: dict[Individual, list[Entry]] = defaultdict(list)
    not_ours = 0
    for entry in entries:
        is_ours = entry.key not in ignored and layout.is_ours(entry)
        individual = _individual(layout, entry.key) if is_ours else None
        if individual is None:
            not_ours += 1
        else:
            there[individual].append(entry)
    differences: list[Difference] = []
    unusable: list[Unusable] = []
    same = edited = 0
    for individual, row in _wanted(layout, rows):
        found = there.pop(individual, [])
        if edited_after is not None and row.revision > edited_after:
            edited += 1
            continue
        outcome, others = _judged(layout, found, row)
        unusable += others
        if outcome is not None:
            differences.append(outcome)
        same += outcome is None and not others
    for found in there.values():
        outcome, others = _judged(layout, found, None)
        unusable += others
        differences += [outcome] if outcome is not None else []
    return Comparison(differences, unusable, same, not_ours, edited)


def _individual(layout: RegionKeys, key: bytes) -> Individual | None:
    kind = layout.kind(key)
    name = kind.parse(key, layout.region)
    return None if isinstance(name, Bad) else (kind.name, name_of(name))


def _wanted(layout: RegionKeys, rows: Iterable[Row]) -> Iterator[tuple[Individual, Row]]:
    for row in rows:
        individual = _individual(layout, row.key) if layout.wants(row.key, row.doc) else None
        if individual is not None:
            yield individual, row


def _judged(
    layout: RegionKeys, found: Sequence[Entry], row: Row | None
) -> tuple[Difference | None, Sequence[Unusable]]:
    """Judge one individual: its difference, if there is one, and the entries that cannot be compared."""
    here = next((entry for entry in found if row is not None and entry.key == row.key), None)
    if len(found) > 1:
        others = [entry for entry in found if entry is not here]
        keys = ", ".join(layout.show(entry.key) for entry in found)
        why = f"the store has this object {len(found)} times ({keys}): apply it with the host that it is on"
        contradicts = row is not None and here is None
        repeated = [Unusable(layout.show(entry.key), why, contradicts) for entry in others]
        return (None if here is None else _difference(layout, here, row)[0]), repeated
    if not found:
        assert row is not None
        return Difference(Divergence.GONE, *_titled(layout, row.key), row=row), ()
    outcome, bad = _difference(layout, found[0], row)
    return outcome, () if bad is None else (bad,)


def _difference(layout: RegionKeys, entry: Entry, row: Row | None) -> tuple[Difference | None, Unusable | None]:
    thing = layout.kind(entry.key).decode(entry.key, entry.value)
    if row is not None and row.key == entry.key and layout.same(Entry(row.key, row.doc), entry):
        return None, None
    if isinstance(thing, Bad):
        moved = row is not None and row.key != entry.key
        return None, Unusable(layout.show(entry.key), f"its value is unreadable: {thing.reason.value}", moved)
    how = Divergence.NEW
    if row is not None:
        how = Divergence.CHANGED if row.key == entry.key else Divergence.MOVED
    return Difference(how, *_titled(layout, entry.key), entry, row, thing), None


def _titled(layout: RegionKeys, key: bytes) -> tuple[Kind[Any, Any], str]:
    individual = _individual(layout, key)
    assert individual is not None
    return layout.kind(key), individual[1]


def without_deleted(comparison: Comparison, witnesses: Mapping[bytes, Witness], after: int = 0) -> Comparison:
    """Leave out new objects whose delete the inventory recorded after that revision: the syncer deletes them."""
    deleted = {
        one.title: witness
        for one in comparison.of(Divergence.NEW)
        if one.entry is not None and (witness := witnesses.get(one.entry.key)) and witness.revision > after
    }
    left = [one for one in comparison.differences if one.how is not Divergence.NEW or one.title not in deleted]
    return replace(comparison, differences=left, deleted=deleted)


def requests(differences: Sequence[Difference]) -> Sequence[WantedObject]:
    """Requests that make the inventory follow the store, each based on the state that it was compared with."""
    gone = [one for one in differences if one.how is Divergence.GONE]
    coming = [one for one in differences if one.how is not Divergence.GONE]
    first = [one for kind in _DELETED_FIRST for one in gone if one.kind is kind]
    last = [one for kind in reversed(KINDS) if kind not in _DELETED_FIRST for one in gone if one.kind is kind]
    order = {kind.name: place for place, kind in enumerate(KINDS)}
    return [_request(one) for one in (*first, *sorted(coming, key=lambda one: order[one.kind.name]), *last)]


def _request(one: Difference) -> WantedObject:
    revision = 0 if one.row is None else one.row.revision
    if one.entry is None:
        return WantedObject(one.kind, one.name, based_on=revision)
    return WantedObject(one.kind, one.name, one.thing, one.entry.key, revision, one.entry.value)
