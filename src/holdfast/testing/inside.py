"""Work inside a network namespace, from a process that stays outside: only a thread goes there.

A socket stays in the namespace that it was made in, whoever uses it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.balancer.namespace import Whereabouts

T = TypeVar("T")


def enter(namespace: str) -> None:
    """Moves the calling thread, and no other, into the namespace of that (system) name, for good."""
    whereabouts = Whereabouts()
    try:
        whereabouts.settle(namespace)
    finally:
        whereabouts.close()


def inside(namespace: str, work: Callable[[], T]) -> T:
    """Does the work in a thread that has moved into the namespace, and hands back what came of it."""
    with ThreadPoolExecutor(1, initializer=enter, initargs=(namespace,)) as there:
        return there.submit(work).result()
