"""Replies as etcd's gateway writes them: int64 as strings, bytes as base64, and no field that is zero, empty or false.

Pure. Entries and events are formatted by hand: each is written once per commit and read by every watch.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.store.api import Entry, Event

encode = msgspec.json.Encoder().encode


def as_json(fields: Mapping[str, object]) -> bytes:
    """Encode a reply without its zero fields."""
    return encode(_present(fields))


def _present(fields: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in fields.items():
        if isinstance(value, bool):
            if value:
                found[name] = True
        elif isinstance(value, int):
            if value:
                found[name] = str(value)
        elif isinstance(value, Mapping):
            found[name] = _present(value)
        elif value or isinstance(value, msgspec.Raw):
            found[name] = value
    return found


def entries(found: Sequence[Entry], *, keys_only: bool = False) -> msgspec.Raw | None:
    """Encode entries as a list; None for no entry."""
    if not found:
        return None
    return msgspec.Raw(b"[%s]" % b",".join(_entry(each, keys_only=keys_only) for each in found))


def event(each: Event) -> bytes:
    """Encode one event of a watch."""
    if each.entry is None:
        key = b2a_base64(each.key, newline=False)
        return b'{"type":"DELETE","kv":{"key":"%s","mod_revision":"%d"}}' % (key, each.mod_revision)
    return b'{"kv":%s}' % _entry(each.entry, keys_only=False)


def _entry(entry: Entry, *, keys_only: bool) -> bytes:
    key = b2a_base64(entry.key, newline=False)
    value = b"" if keys_only or not entry.value else b',"value":"%s"' % b2a_base64(entry.value, newline=False)
    lease = b',"lease":"%d"' % entry.lease if entry.lease else b""
    numbers = entry.create_revision, entry.mod_revision, entry.version
    return b'{"key":"%s","create_revision":"%d","mod_revision":"%d","version":"%d"%s%s}' % (key, *numbers, value, lease)
