"""Diff: the changes that turn actual into desired state, in key order.

`diff` merges two sorted runs of the same key range, so that it can be fed page by page and an unchanged object costs
one comparison. A run that is not strictly increasing would make present objects look absent, so it raises `OutOfOrder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.reconcile.change import Change, K, Kept, Op, Owned, V


class OutOfOrder(ValueError):
    """A run of keys is not strictly increasing. Nothing that was compared with it may be applied."""


def diff(
    want: Iterable[tuple[K, Owned[V]]], have: Iterable[tuple[K, Owned[V]]], same: Callable[[V, V], bool]
) -> Iterator[Change[K, V]]:
    """Yield the changes that turn `have` into `want`, in key order. `same` decides whether two values are equal."""
    # Keys are ordered by contract; in Python 3.11 a bound TypeVar could not express that without excluding tuples.
    wants: Iterator[tuple[Any, Owned[V]]] = iter(want)
    haves: Iterator[tuple[Any, Owned[V]]] = iter(have)
    w, h = next(wants, None), next(haves, None)
    last: Any = None
    pair: tuple[Owned[V] | None, Owned[V] | None] = (
        None,
        None,
    )  # the last pair found equal; the next is often the same pair
    while w is not None or h is not None:
        new: Owned[V] | None = None
        old: Owned[V] | None = None
        if w is not None and h is not None and w[0] == h[0]:
            (key, new), old = w, h[1]
            w, h = next(wants, None), next(haves, None)
        elif h is None or (w is not None and w[0] < h[0]):
            assert w is not None
            key, new = w
            w = next(wants, None)
        else:
            key, old = h
            h = next(haves, None)
        # The smaller head of two runs is above the last key taken if and only if both runs increase.
        if last is not None and not last < key:
            raise OutOfOrder(f"key {key!r} follows {last!r}: the run is not sorted, so the comparison is discarded")
        last = key
        if new is None or old is None:
            if not isinstance(new, Kept):
                yield _change(key, new, old)
        elif new is not pair[0] or old is not pair[1]:
            if same(new.value, old.value):
                pair = new, old
            elif not isinstance(new, Kept):
                yield Change(Op.REPLACE, key, old, new)


def changed(
    keys: Iterable[K], want: Mapping[K, Owned[V]], have: Mapping[K, Owned[V]], same: Callable[[V, V], bool]
) -> Iterator[Change[K, V]]:
    """Yield the changes of the given keys, in their order, when both sides are at hand."""
    pair: tuple[Owned[V] | None, Owned[V] | None] = None, None
    differs = False
    for key in keys:
        new, old = want.get(key), have.get(key)
        if new is not None and old is not None:
            if new is not pair[0] or old is not pair[1]:
                pair, differs = (new, old), not (same(new.value, old.value) or isinstance(new, Kept))
            if differs:
                yield Change(Op.REPLACE, key, old, new)
        elif new is not old and not isinstance(new, Kept):
            yield _change(key, new, old)


def _change(key: K, new: Owned[V] | None, old: Owned[V] | None) -> Change[K, V]:
    op = Op.DELETE if new is None else Op.CREATE if old is None else Op.REPLACE
    return Change(op, key, old, new)
