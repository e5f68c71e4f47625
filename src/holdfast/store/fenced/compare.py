"""Whether a comparison of a transaction holds for a key as it was read: etcd's rule, evaluated here."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from holdfast.store.api import Aspect, Compare, Entry

_RELATION: dict[str, Callable[[Any, Any], bool]] = {
    "EQUAL": operator.eq,
    "NOT_EQUAL": operator.ne,
    "GREATER": operator.gt,
    "LESS": operator.lt,
}


def holds(compare: Compare, entry: Entry | None) -> bool:
    """A key that does not exist has revision, version and lease 0, and no value: comparing its value never holds."""
    if compare.aspect is Aspect.VALUE:
        return entry is not None and _RELATION[compare.relation](entry.value, compare.wanted)
    return _RELATION[compare.relation](_number(compare.aspect, entry or Entry(compare.key)), compare.wanted)


def _number(aspect: Aspect, entry: Entry) -> int:
    match aspect:
        case Aspect.CREATE_REVISION:
            return entry.create_revision
        case Aspect.MOD_REVISION:
            return entry.mod_revision
        case Aspect.VERSION:
            return entry.version
        case _:
            return entry.lease
