"""Properties of every kind: round trips, canonical bytes, unknown fields kept, bad values named."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.model.base import codec
from holdfast.model.base.bad import DETAIL_LIMIT, Bad, BadReason
from holdfast.model.base.kind import Kind
from holdfast.model.kinds import KINDS, kind_named
from tests.model.strategies import REGION, SAMPLES

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
relaxed = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def _json(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | numbers | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    )


plain_json = _json(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
json_values = _json(st.integers() | st.floats())
"""Also what Python alone calls JSON: NaN, Infinity."""

STRANGE = "zz field of a later version"
MAPS = ("labels", "annotations", "counts", "workers", "frontends", "details")


@every_kind
@relaxed
@given(data=st.data())
def test_a_key_is_read_back_as_the_name_it_was_made_of(kind: Kind[Any, Any], data: st.DataObject) -> None:
    name, _ = data.draw(SAMPLES[kind.name])
    key = kind.key(REGION, name)
    assert key.startswith(kind.prefix(REGION))
    assert kind.parse(key, REGION) == name
    assert [one for one in KINDS if not isinstance(one.parse(key, REGION), Bad)] == [kind]


@every_kind
@relaxed
@given(data=st.data())
def test_an_object_is_decoded_as_it_was_encoded(kind: Kind[Any, Any], data: st.DataObject) -> None:
    name, obj = data.draw(SAMPLES[kind.name])
    value = kind.encode(obj)
    decoded = kind.decode(kind.key(REGION, name), value)
    assert decoded == obj
    assert kind.encode(decoded) == value


@every_kind
@relaxed
@given(data=st.data())
def test_a_value_spelled_differently_is_the_same_object_and_needs_no_rewrite(
    kind: Kind[Any, Any], data: st.DataObject
) -> None:
    name, obj = data.draw(SAMPLES[kind.name])
    document = json.loads(kind.encode(obj))
    respelled = json.dumps(dict(reversed(document.items())), indent=1).encode()
    key = kind.key(REGION, name)
    decoded = kind.decode(key, respelled)
    assert kind.encode(decoded) == kind.encode(obj)
    assert kind.equals(key, respelled, obj)


@every_kind
@relaxed
@given(data=st.data())
def test_a_rewrite_keeps_unknown_fields_at_every_level(kind: Kind[Any, Any], data: st.DataObject) -> None:
    name, old = data.draw(SAMPLES[kind.name])
    document = json.loads(kind.encode(old))
    _add_strange_fields(document, data.draw(plain_json))
    value = json.dumps(document).encode()
    key = kind.key(REGION, name)
    rewritten = kind.encode(old, over=value)
    assert json.loads(rewritten) == document
    assert kind.decode(key, rewritten) == old
    assert kind.encode(old, over=rewritten) == rewritten


def _add_strange_fields(document: dict[str, Any], stranger: object) -> None:
    """Puts a field that nobody knows into the document and all objects nested in it, except into maps and lists."""
    for name, item in document.items():
        if isinstance(item, dict) and name not in MAPS:
            _add_strange_fields(item, stranger)
    document[STRANGE] = stranger


@every_kind
@relaxed
@given(data=st.data())
def test_a_rewrite_holds_the_new_object_and_no_field_of_the_old(kind: Kind[Any, Any], data: st.DataObject) -> None:
    _, old = data.draw(SAMPLES[kind.name])
    _, new = data.draw(SAMPLES[kind.name])
    rewritten = kind.encode(new, over=kind.encode(old))
    expected = new if kind.tail and kind.tail(old) != kind.tail(new) else kind.carried(new, old)
    assert rewritten == kind.encode(expected)


@every_kind
@relaxed
@given(data=st.data(), rubbish=st.binary(max_size=64))
def test_a_corrupt_old_value_is_repaired_by_the_rewrite(
    kind: Kind[Any, Any], data: st.DataObject, rubbish: bytes
) -> None:
    _, obj = data.draw(SAMPLES[kind.name])
    assume(isinstance(kind.decode(b"", rubbish), Bad))
    assert kind.encode(obj, over=rubbish) == kind.encode(obj)


@every_kind
@relaxed
@given(key=st.binary(max_size=40), value=st.binary(max_size=80), rooted=st.booleans())
def test_any_bytes_are_an_object_or_bad(kind: Kind[Any, Any], key: bytes, value: bytes, rooted: bool) -> None:
    key = kind.prefix(REGION) + key if rooted else key
    decoded = kind.decode(key, value)
    assert isinstance(decoded, Bad | kind.struct)
    name = kind.parse(key, REGION)
    assert isinstance(name, Bad) or kind.key(REGION, name) == key


@every_kind
@relaxed
@given(document=json_values)
def test_any_json_is_an_object_or_bad(kind: Kind[Any, Any], document: object) -> None:
    value = json.dumps(document).encode()
    assert isinstance(kind.decode(kind.prefix(REGION), value), Bad | kind.struct)


@every_kind
@relaxed
@given(data=st.data())
def test_a_damaged_value_is_an_object_or_bad_and_its_detail_is_short(kind: Kind[Any, Any], data: st.DataObject) -> None:
    name, obj = data.draw(SAMPLES[kind.name])
    key = kind.key(REGION, name)
    value = bytearray(kind.encode(obj))
    at = data.draw(st.integers(0, len(value)))
    value[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
    _is_object_or_bad(kind, key, bytes(value))


@every_kind
@relaxed
@given(data=st.data(), intruder=json_values)
def test_a_wrong_type_in_any_field_is_an_object_or_bad(
    kind: Kind[Any, Any], data: st.DataObject, intruder: object
) -> None:
    name, obj = data.draw(SAMPLES[kind.name])
    document = json.loads(kind.encode(obj))
    holder = data.draw(st.sampled_from(_objects(document)))
    assume(holder)
    holder[data.draw(st.sampled_from(sorted(holder)))] = intruder
    _is_object_or_bad(kind, kind.key(REGION, name), json.dumps(document).encode())


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in _objects(item))]
    return [found for item in value for found in _objects(item)] if isinstance(value, list) else []


def _is_object_or_bad(kind: Kind[Any, Any], key: bytes, value: bytes) -> None:
    decoded = kind.decode(key, value)
    if isinstance(decoded, Bad):
        assert decoded.key == key
        assert decoded.detail
        assert decoded.detail.isprintable()
        assert len(decoded.detail) <= 2 * DETAIL_LIMIT + 8
    else:
        again = kind.encode(decoded)
        assert kind.decode(key, again) == decoded
        assert kind.decode(key, kind.encode(decoded, over=value)) == decoded


@every_kind
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", BadReason.NOT_JSON),
        (b"{", BadReason.NOT_JSON),
        (b"{'status': 'up'}", BadReason.NOT_JSON),
        (b'{"a": NaN}', BadReason.NOT_JSON),
        (b'{"zz": "\xff"}', BadReason.NOT_UTF8),
        (b"[]", BadReason.WRONG_SHAPE),
        (b'"up"', BadReason.WRONG_SHAPE),
        (b"null", BadReason.WRONG_SHAPE),
        (b"3", BadReason.WRONG_SHAPE),
        (b'{"zz":' + b"[" * 100_000 + b"]" * 100_000 + b"}", BadReason.TOO_DEEP),
        (b'{"zz":"' + b"x" * codec.VALUE_LIMIT + b'"}', BadReason.TOO_LARGE),
    ],
    ids=lambda case: case.name if isinstance(case, BadReason) else "",
)
def test_C13_rubbish_is_bad_with_its_reason(kind: Kind[Any, Any], value: bytes, reason: BadReason) -> None:
    decoded = kind.decode(b"/some/key", value)
    assert isinstance(decoded, Bad)
    assert (decoded.key, decoded.reason) == (b"/some/key", reason)


@every_kind
@relaxed
@given(data=st.data())
def test_every_column_can_be_shown(kind: Kind[Any, Any], data: st.DataObject) -> None:
    name, obj = data.draw(SAMPLES[kind.name])
    assert all(isinstance(column.cell(name, obj), str) for column in kind.columns)
    headers = [column.header for column in kind.columns]
    assert len(set(headers)) == len(headers)


def test_every_kind_is_sampled_and_named_once() -> None:
    assert [kind.name for kind in KINDS] == list(dict.fromkeys(kind.name for kind in KINDS))
    assert set(SAMPLES) == {kind.name for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_is_found_by_singular_and_plural(kind: Kind[Any, Any]) -> None:
    assert kind_named(kind.name) is kind
    assert kind_named(kind.plural) is kind


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"there is no kind 'pod'; known are host, network, endpoint, policy"):
        kind_named("pod")


def test_an_unknown_key_has_no_kind() -> None:
    assert all(isinstance(kind.parse(b"/registry/pods/default/x", REGION), Bad) for kind in KINDS)


def test_a_detail_quotes_only_a_few_characters_of_the_value() -> None:
    secret = "s3cret" * 100
    decoded = kind_named("endpoint-status").decode(b"/k", msgspec.json.encode({"status": secret}))
    assert isinstance(decoded, Bad)
    assert len(decoded.detail) < DETAIL_LIMIT + 40
    assert decoded.detail.endswith("`$.status`")
