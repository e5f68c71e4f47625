"""One Neutron for all tests here; `make test-openstack` runs them. Each test has a network and hosts of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.protection import VARIABLE, waiting_at_most
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from holdfast.testing.real.neutron import NeutronFleet, neutron
from tests.openstack.neutron.felix import Cloud

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def own_etcd() -> Iterator[EtcdCluster]:
    """An etcd for Neutron's tests alone: they use the default region."""
    with or_skip(etcd_cluster(1)) as cluster:
        yield cluster


@pytest.fixture
def other_etcd() -> Iterator[EtcdCluster]:
    """An empty etcd for a test that fills it before Holdfast does."""
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
    if _removes(request):
        made.eventually(fleet.resynced, "the differences of a removed protection are repaired")
    made.in_sync()


@pytest.fixture
def tested_server(cloud: Cloud, request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """To be called by a test that removes a protection of the server: starts the server again without it."""

    def start() -> None:
        if VARIABLE in os.environ:
            with waiting_at_most(None):  # the run with the protection, which limits these waits, started no server
                cloud.restart_server()
                first = cloud.port()  # the first status takes long: its worker loads Neutron
                cloud.up(first)
                cloud.eventually(lambda: cloud.show(first)["status"] == "ACTIVE", "the status worker writes")

    yield start
    if _removes(request):
        cloud.restart_server()


def _removes(request: pytest.FixtureRequest) -> bool:
    """Return whether a protection is replaced in this test, if only by a placebo."""
    called = getattr(request.node, "callspec", None)
    protection = None if called is None else called.params.get("protection")
    return protection == "removed" or (protection is not None and request.config.getoption("placebo"))
