"""Store and inventory side by side: what is new, changed, moved or gone, and the requests that follow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.change.sides import Comparison, Divergence, compare, requests, without_deleted
from holdfast.inventory.api import Row, Witness
from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.kinds import KINDS
from holdfast.model.base.kind import Kind
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry
from tests.inventory.harness import REGION, endpoint, endpoint_key, host, migration, subnet
from tests.model.strategies import REGION as SAMPLE_REGION
from tests.model.strategies import SAMPLES
from tests.model.test_kinds import relaxed

LAYOUT = RegionKeys(REGION, KINDS)


def entry(wish: WantedObject, **more: object) -> Entry:
    """The object as another client wrote it, with fields that our model does not know."""
    assert wish.thing is not None
    document = msgspec.json.decode(wish.kind.encode(wish.thing))
    return Entry(wish.key, msgspec.json.encode({**document, **more}), mod_revision=7)


def row(wish: WantedObject, revision: int = 1) -> Row:
    assert wish.thing is not None
    return Row(wish.key, wish.kind.encode(wish.thing), revision)


def titles(found: Comparison, how: Divergence) -> list[str]:
    return [one.title for one in found.of(how)]


def test_each_object_is_found_once_however_it_differs() -> None:
    found = compare(
        LAYOUT,
        [
            entry(host(1), extra=1),
            entry(endpoint(1)),
            entry(endpoint(2, gateway="10.0.0.1")),
            entry(endpoint(3, on="r2")),
        ],
        [row(host(1)), row(endpoint(2)), row(endpoint(3)), row(endpoint(4))],
    )
    assert titles(found, Divergence.NEW) == ["endpoint holdfast-w1-eth0"]
    assert titles(found, Divergence.CHANGED) == ["endpoint holdfast-w2-eth0"]
    assert titles(found, Divergence.MOVED) == ["endpoint holdfast-w3-eth0"]
    assert titles(found, Divergence.GONE) == ["endpoint holdfast-w4-eth0"]
    assert (found.same, found.unusable, found.not_ours) == (1, [], 0)


def test_keys_of_another_form_and_ignored_keys_are_not_ours() -> None:
    strange = Entry(LAYOUT.prefixes[0] + b"a/b/c", b"{}")
    found = compare(LAYOUT, [strange, entry(endpoint(1))], [], ignored={endpoint_key(1)})
    assert (found.not_ours, found.differences) == (2, [])


def test_an_unreadable_value_is_named_and_is_neither_new_nor_gone() -> None:
    found = compare(LAYOUT, [Entry(endpoint_key(1), b"rubbish"), Entry(endpoint_key(2), b"{")], [row(endpoint(1))])
    assert [(one.title, one.contradicts) for one in found.unusable] == [
        ("endpoint r1-holdfast-w1-eth0", False),
        ("endpoint r1-holdfast-w2-eth0", False),
    ]
    assert all("unreadable" in one.why for one in found.unusable)
    assert (found.differences, found.same) == ([], 0)


def test_an_object_with_two_keys_in_the_store_is_not_chosen_from() -> None:
    both = [entry(endpoint(1)), entry(endpoint(1, on="r2"))]
    found = compare(LAYOUT, both, [])
    assert (found.differences, [one.contradicts for one in found.unusable]) == ([], [False, False])
    assert "2 times (endpoint r1-holdfast-w1-eth0, endpoint r2-holdfast-w1-eth0)" in found.unusable[0].why


def test_of_two_keys_the_one_in_the_inventory_is_compared() -> None:
    both = [entry(endpoint(1, gateway="10.0.0.1")), entry(endpoint(1, on="r2"))]
    found = compare(LAYOUT, both, [row(endpoint(1))])
    assert titles(found, Divergence.CHANGED) == ["endpoint holdfast-w1-eth0"]
    assert [one.title for one in found.unusable] == ["endpoint r2-holdfast-w1-eth0"]
    third = compare(LAYOUT, both, [row(endpoint(1, on="r3"))])
    assert [one.contradicts for one in third.unusable] == [True, True]
    assert third.differences == []


def test_an_object_edited_after_the_verdict_is_left_out() -> None:
    rows = [row(endpoint(1), 5), row(endpoint(2), 6), row(endpoint(3), 6)]
    found = compare(LAYOUT, [entry(endpoint(2, on="r2"))], rows, edited_after=5)
    assert titles(found, Divergence.GONE) == ["endpoint holdfast-w1-eth0"]
    assert (len(found.differences), found.edited) == (1, 2)


def test_an_object_whose_delete_is_recorded_is_not_new() -> None:
    found = compare(LAYOUT, [entry(endpoint(1)), entry(endpoint(2))], [])
    witnesses = {endpoint_key(1): Witness(4, "bob"), endpoint_key(2): Witness(9, "bob")}
    assert without_deleted(found, witnesses).differences == []
    after = without_deleted(found, witnesses, after=5)
    assert titles(after, Divergence.NEW) == ["endpoint holdfast-w1-eth0"]
    assert list(after.deleted) == ["endpoint holdfast-w2-eth0"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@relaxed
@given(data=st.data())
def test_what_was_imported_is_the_same_as_in_the_store(kind: Kind[Any, Any], data: st.DataObject) -> None:
    name, thing = data.draw(SAMPLES[kind.name])
    there = entry(wanted(kind, SAMPLE_REGION, name, thing), zz={"unknown": [1]})
    layout = RegionKeys(SAMPLE_REGION, KINDS)
    found = compare(layout, [there], [])
    (asked,) = requests(found.differences)
    assert asked.thing is not None
    doc = kind.encode(asked.thing, over=asked.imported)
    assert b'"zz":{"unknown":[1]}' in doc
    again = compare(layout, [there], [Row(asked.key, doc, 1)])
    assert (again.differences, again.unusable, again.same) == ([], [], 1)


def test_requests_delete_dependents_first_and_hosts_last() -> None:
    found = compare(
        LAYOUT,
        [entry(migration(3, to="r2")), entry(endpoint(3)), entry(subnet("red", "10.0.0.0/8")), entry(host(2))],
        [row(host(1)), row(endpoint(1), 8), row(migration(1, to="r2"))],
    )
    asked = requests(found.differences)
    assert [(one.kind.name, one.thing is None, one.based_on) for one in asked] == [
        ("migration", True, 1),
        ("endpoint", True, 8),
        ("host", False, 0),
        ("subnet", False, 0),
        ("endpoint", False, 0),
        ("migration", False, 0),
        ("host", True, 1),
    ]
    assert asked[2].imported == entry(host(2)).value
