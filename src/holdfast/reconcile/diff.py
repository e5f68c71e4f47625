"""Diff: what separates the wanted from the present, as changes in key order.

A merge of two sorted runs of the same key range, so that it can be fed page by page and an unchanged object costs one
comparison. A run that is not strictly increasing would make present objects look absent; that is refused, never
guessed about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.reconcile.change import Change, K, Op, Owned, V


class OutOfOrder(ValueError):
    """A run of keys was not strictly increasing. Nothing that was compared with it may be applied."""


def diff(
    want: Iterable[tuple[K, Owned[V]]], have: Iterable[tuple[K, Owned[V]]], same: Callable[[V, V], bool]
) -> Iterator[Change[K, V]]:
    """Yields the changes that turn `have` into `want`, in key order. `same` decides whether two values are equal."""
    return changed(_merged(want, have), same)


def changed(
    sides: Iterable[tuple[K, Owned[V] | None, Owned[V] | None]], same: Callable[[V, V], bool]
) -> Iterator[Change[K, V]]:
    """The same for objects of which both sides are at hand: key, what is wanted, what is there."""
    for key, new, old in sides:
        if new is None:
            if old is not None:
                yield Change(Op.DELETE, key, old, None)
        elif old is None:
            yield Change(Op.CREATE, key, None, new)
        elif not same(new.value, old.value):
            yield Change(Op.REPLACE, key, old, new)


def _merged(
    want: Iterable[tuple[K, Owned[V]]], have: Iterable[tuple[K, Owned[V]]]
) -> Iterator[tuple[K, Owned[V] | None, Owned[V] | None]]:
    # Keys are ordered by contract; Python 3.11 cannot say so about a plain TypeVar without losing tuples.
    wants: Iterator[tuple[Any, Owned[V]]] = iter(want)
    haves: Iterator[tuple[Any, Owned[V]]] = iter(have)
    w, h = next(wants, None), next(haves, None)
    last: Any = None
    while w is not None or h is not None:
        if w is not None and h is not None and w[0] == h[0]:
            key, new, old = w[0], w[1], h[1]
        elif h is None or (w is not None and w[0] < h[0]):
            assert w is not None
            key, new, old = w[0], w[1], None
        else:
            key, new, old = h[0], None, h[1]
        # The smaller head of two increasing runs is always above the last one taken, and only then.
        if last is not None and not last < key:
            raise OutOfOrder(f"key {key!r} came after {last!r}: the run is not sorted, so nothing is concluded from it")
        last = key
        yield key, new, old
        if new is not None:
            w = next(wants, None)
        if old is not None:
            h = next(haves, None)
