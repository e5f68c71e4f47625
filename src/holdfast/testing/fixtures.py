"""Pytest fixtures for real things. `pytest_plugins = ["holdfast.testing.fixtures"]` in a conftest makes them known.

Each is a plain context manager of this package; here it only becomes a fixture, and what cannot be had on this
machine becomes a skip with its reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import pytest

from holdfast.testing.etcd import Cluster, etcd_cluster
from holdfast.testing.processes import Unavailable

T = TypeVar("T")


@contextlib.contextmanager
def or_skip(thing: contextlib.AbstractContextManager[T]) -> Iterator[T]:
    """The thing, or a skip that says what is missing."""
    with contextlib.ExitStack() as held:
        try:
            value = held.enter_context(thing)
        except Unavailable as missing:
            pytest.skip(str(missing))
        yield value


@pytest.fixture(scope="session")
def one_etcd() -> Iterator[Cluster]:
    """One etcd member for the whole session. Tests share it: keep to keys of your own, or clear it first."""
    with or_skip(etcd_cluster(1)) as cluster:
        yield cluster


@pytest.fixture
def three_etcds() -> Iterator[Cluster]:
    """Three etcd members of this test's own, to kill, pause and restart."""
    with or_skip(etcd_cluster(3)) as cluster:
        yield cluster
