"""Codec of stored values: decodes into frozen structs, and keeps unknown fields when it rewrites a value.

Decoding skips fields that our structs do not know. `overlay` restores them when a value is rewritten: it lays our
fields over the old document and keeps the rest byte for byte, so that version N may add a field and N-1 does not lose
it (rule 8). Labels and lists are entirely ours and are replaced.

Encoding is canonical: fields in the struct's order, maps sorted, defaults left out where the struct says so.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import inspect

VALUE_LIMIT = 1_572_864
"""Bytes. The default limit of an etcd request: no valid peer writes a larger value, so it is not parsed."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number on the wire: whole, not negative, and within the int64 of readers in Go."""

T = TypeVar("T")
Document = dict[str, msgspec.Raw]
Shape = dict[str, "Shape | None"]
"""The field names of a struct on the wire, in order; for nested structs their shape."""

_document = msgspec.json.Decoder(Document)

encode = msgspec.json.Encoder(order="deterministic").encode


def decode(decoder: msgspec.json.Decoder[T], value: bytes) -> T:
    """Decode a value. Raises only ValueError or RecursionError, whatever the bytes."""
    if not value.isascii():
        # Unknown fields are skipped unread; without this check a rewrite could keep invalid UTF-8.
        value.decode()
    try:
        return decoder.decode(value)
    except msgspec.ValidationError:
        if b"null" not in value:
            raise
    # Go writes null for an empty list or map and reads it as absent. So do we, when the strict decoder fails.
    return msgspec.convert(_without_nulls(msgspec.json.decode(value)), decoder.type)


def overlay(struct: type, new: bytes, old: bytes) -> bytes:
    """Add to `new` the fields of `old` that `struct` does not know. Raises like `decode` if `old` is no document."""
    return msgspec.json.encode(_merge(_shape(struct), _document.decode(new), _document.decode(old)))


def _merge(shape: Shape, new: Document, old: Document) -> dict[str, Any]:
    merged: dict[str, Any] = {name: _nested(shape.get(name), raw, old.get(name)) for name, raw in new.items()}
    merged.update((name, old[name]) for name in sorted(old) if name not in shape)
    return merged


def _nested(shape: Shape | None, new: msgspec.Raw, old: msgspec.Raw | None) -> msgspec.Raw | dict[str, Any]:
    if shape is None or old is None or _is_null(new) or _is_null(old):
        return new
    return _merge(shape, _document.decode(new), _document.decode(old))


def _is_null(raw: msgspec.Raw) -> bool:
    return bytes(raw).strip() == b"null"


@cache
def _shape(struct: type) -> Shape:
    return _shape_of(cast("inspect.StructType", inspect.type_info(struct)))


def _shape_of(struct: inspect.StructType) -> Shape:
    shape: Shape = {field.encode_name: _nested_shape(field.type) for field in struct.fields}
    if struct.tag_field is not None:
        shape[struct.tag_field] = None
    return shape


def _nested_shape(kind: inspect.Type) -> Shape | None:
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        structs = [each for each in kind.types if isinstance(each, inspect.StructType)]
        kind = structs[0] if len(structs) == 1 else kind
    return _shape_of(kind) if isinstance(kind, inspect.StructType) else None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
