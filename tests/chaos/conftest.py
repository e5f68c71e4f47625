"""One etcd of three members for all chaos tests, and one fleet of three servers for those that can share it.

Each test finds both whole. A test whose servers need settings of their own, or run without a protection, starts them
itself (`tests.chaos.harness.servers`), in a region of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from holdfast.testing.real.servers import ServerGroup
from tests.chaos.harness import assert_faultless, servers, wait_working


@pytest.fixture(scope="package")
def started() -> Iterator[EtcdCluster]:
    with or_skip(etcd_cluster(3)) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: EtcdCluster) -> Iterator[EtcdCluster]:
    """All members serve, before the test and, whatever it did to them, for the next one."""
    yield started
    for member in started.members:
        if member.process.alive:
            member.resume()
        else:
            member.start()
    started.wait_ready()


@pytest.fixture(scope="package")
def shared(started: EtcdCluster) -> Iterator[ServerGroup]:
    with servers(started, 3) as fleet:
        yield fleet


@pytest.fixture
def fleet(cluster: EtcdCluster, shared: ServerGroup) -> Iterator[ServerGroup]:
    """Three running servers, one of them leading. At the end, check their whole history."""
    for server in shared.members:
        if not server.process.alive:
            server.start()
    shared.wait_all_run()
    wait_working(shared)
    yield shared
    assert_faultless(shared)
