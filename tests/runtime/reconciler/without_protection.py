"""Replacements for protections of the reconcile loop that a fault test removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.reconcile import Change, Closed, Op


def all_counts(
    _held: Iterable[tuple[Change[Any, Any], Closed]],
    _tallies: Mapping[str, Counter[Op]],
    there: Mapping[str, int],
    _of: Callable[[Any], str],
) -> Mapping[str, int]:
    """The brake counts what other gates hold."""
    return there
