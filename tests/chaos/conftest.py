"""One etcd of three members for all chaos tests; each test brings servers of its own, in a region of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.etcd import Cluster, etcd_cluster
from holdfast.testing.fixtures import or_skip


@pytest.fixture(scope="session")
def started() -> Iterator[Cluster]:
    with or_skip(etcd_cluster(3)) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Cluster) -> Iterator[Cluster]:
    """All members serve, before the test and, whatever it did to them, for the next one."""
    yield started
    for member in started.members:
        if member.process.alive:
            member.resume()
        else:
            member.start()
    started.wait_ready()
