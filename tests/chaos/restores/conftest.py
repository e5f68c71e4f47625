"""One fleet for all restore drills, whole before each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.real.etcd_snapshots import etcdctl
from holdfast.testing.real.fleet import RealFleet
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import Unavailable
from tests.chaos.restores.harness import Fleets


@pytest.fixture(scope="package")
def fleets(postgres: Postgres) -> Iterator[Fleets]:
    kept = Fleets(postgres)
    yield kept
    kept.close()


@pytest.fixture
def fleet(fleets: Fleets) -> RealFleet:
    """Two servers, two agents, one etcd and PostgreSQL: whole before each drill."""
    try:
        etcdctl()
    except Unavailable as missing:
        pytest.skip(str(missing))
    return fleets.whole()
