"""One Neutron for all tests here; `make test-openstack` runs them. Each test has a network and hosts of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from holdfast.testing.real.neutron import NeutronFleet, neutron
from tests.openstack.neutron.felix import Cloud

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def own_etcd() -> Iterator[EtcdCluster]:
    """An etcd for Neutron's tests alone: they use the default region."""
    with or_skip(etcd_cluster(1)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest) -> Iterator[NeutronFleet]:
    with or_skip(_started(request)) as started:
        yield started


def _started(request: pytest.FixtureRequest) -> Any:
    return neutron(lambda: request.getfixturevalue("own_etcd"))


@pytest.fixture
def cloud(fleet: NeutronFleet, request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """A network with one subnet, and a host with a live Felix, that no other test uses.

    After every test Neutron and etcd are equal; one that ran without its protection may need a resync for that.
    """
    made = Cloud(fleet, next(_numbers))
    yield made
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("protection") == "removed":
        made.eventually(lambda: fleet.resynced(), "the differences of a removed protection are repaired")
    made.in_sync()
