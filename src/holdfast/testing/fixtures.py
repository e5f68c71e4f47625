"""Pytest fixtures for real things. `pytest_plugins = ["holdfast.testing.fixtures"]` in a conftest makes them known.

Each is a plain context manager of this package; here it becomes a fixture, and what is unavailable on this
machine becomes a skip with its reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from holdfast.testing.real.netns import NamespaceNetwork, network
from holdfast.testing.real.postgres import Postgres, postgres_cluster
from holdfast.testing.real.processes import Unavailable
from holdfast.testing.real.proxy import FaultProxy, fault_proxy

T = TypeVar("T")


@contextlib.contextmanager
def or_skip(thing: contextlib.AbstractContextManager[T]) -> Iterator[T]:
    """Enter the context, or skip the test with what is missing."""
    with contextlib.ExitStack() as held:
        try:
            value = held.enter_context(thing)
        except Unavailable as missing:
            pytest.skip(str(missing))
        yield value


@pytest.fixture(scope="session")
def one_etcd() -> Iterator[EtcdCluster]:
    """One etcd member for the whole session. Tests share it: keep to keys of your own, or clear it first."""
    with or_skip(etcd_cluster(1)) as cluster:
        yield cluster


@pytest.fixture
def three_etcds() -> Iterator[EtcdCluster]:
    """Three etcd members of this test's own, to kill, pause and restart."""
    with or_skip(etcd_cluster(3)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for the whole session. Take a database of your own from it."""
    with or_skip(postgres_cluster()) as server:
        yield server


@pytest.fixture
def namespaces() -> Iterator[NamespaceNetwork]:
    """An empty network of this test's own."""
    with or_skip(network()) as made:
        yield made


@pytest.fixture
def proxy_to() -> Iterator[Callable[[int], FaultProxy]]:
    """Put a fault proxy in front of a port on loopback."""
    with contextlib.ExitStack() as held:
        yield lambda target: held.enter_context(fault_proxy(target))
