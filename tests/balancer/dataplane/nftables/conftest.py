"""Fixtures of the traffic tests: one site per file, a new balancer per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.balancer.dataplane.nftables import TableShape
from holdfast.balancer.maglev import table as maglev
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.anycast import AnycastSite
from tests.balancer.dataplane.nftables.harness import TABLE, Ground, stage


@pytest.fixture(scope="module")
def site() -> Iterator[AnycastSite]:
    with or_skip(stage()) as (made, _):
        yield made


@pytest.fixture(autouse=True)
def _tables_of_this_test_only() -> Iterator[None]:
    """Tables that were built without a protection are not remembered for those with it."""
    maglev.forget_tables()
    yield
    maglev.forget_tables()


@pytest.fixture
def ground(site: AnycastSite) -> Iterator[Ground]:
    made = Ground(site, TableShape(TABLE))
    try:
        yield made
    finally:
        made.close()
