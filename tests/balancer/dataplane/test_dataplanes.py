"""The conformance suite on dataplanes without a kernel, and the flows of the fake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.dataplane.dry_run import DryRunDataplane
from holdfast.balancer.dataplane.remembered import RememberedFields
from holdfast.balancer.vip import BackendEntry, VipKey, VipSettings
from holdfast.testing.fakes.dataplane import FakeDataplane
from holdfast.testing.fakes.weight_dataplane import FakeWeightDataplane
from tests.balancer.dataplane.conformance import (
    CASES,
    FULL,
    ONE,
    RESTARTS,
    TWO,
    V4,
    Case,
    RestartCase,
    change,
    made,
)

NAMES = frozenset({"sticky", "kill"})


def plain(folder: Path) -> FakeDataplane:
    return FakeDataplane()


def remembering(folder: Path) -> FakeDataplane:
    """It can read neither stickiness nor kills."""
    return FakeDataplane(write_only=NAMES, remembered=RememberedFields(folder / "remembered.json", NAMES))


def by_weight(folder: Path) -> FakeDataplane:
    return FakeWeightDataplane(remembered=RememberedFields(folder / "remembered.json", NAMES))


Make = Callable[[Path], VipDataplane]
LASTING: tuple[Callable[[Path], FakeDataplane], ...] = (plain, remembering, by_weight)


def dry_run(folder: Path) -> VipDataplane:
    return DryRunDataplane()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("make", [*LASTING, dry_run], ids=lambda make: make.__name__)
def test_it_conforms(make: Make, case: Case, tmp_path: Path) -> None:
    async def prove() -> None:
        await case(make(tmp_path))

    asyncio.run(prove())


@pytest.mark.parametrize("case", RESTARTS, ids=lambda case: case.__name__)
@pytest.mark.parametrize("make", LASTING, ids=lambda make: make.__name__)
def test_it_outlives_its_process(make: Callable[[Path], FakeDataplane], case: RestartCase, tmp_path: Path) -> None:
    dataplane = make(tmp_path)

    def reopened() -> FakeDataplane:
        return replace(make(tmp_path), objects=dataplane.objects, flows=dataplane.flows)

    async def prove() -> None:
        await case(dataplane, reopened)

    asyncio.run(prove())


def with_clients(count: int = 300) -> FakeDataplane:
    dataplane = FakeDataplane()
    asyncio.run(made(dataplane, *FULL))
    for client in range(count):
        dataplane.connect(V4, client)
    return dataplane


def clients_of(dataplane: FakeDataplane, backend: object) -> int:
    return sum(to == backend for (vip, _), to in dataplane.flows.items() if vip == V4)


def test_clients_are_spread_by_weight() -> None:
    dataplane = with_clients()
    assert 1.5 < clients_of(dataplane, ONE) / clients_of(dataplane, TWO) < 2.7


def test_a_changed_table_moves_no_established_flow() -> None:
    dataplane = with_clients()
    before = dict(dataplane.flows)
    asyncio.run(made(dataplane, change(VipKey(V4, ONE), BackendEntry(0), BackendEntry(100))))
    assert dataplane.flows == before
    assert {dataplane.connect(V4, client) for client in range(1_000, 1_050)} == {TWO}


def test_kill_ends_exactly_the_dead_backends_flows() -> None:
    dataplane = with_clients()
    others = clients_of(dataplane, TWO)
    asyncio.run(made(dataplane, change(VipKey(V4, ONE), BackendEntry(0, kill=True), BackendEntry(100))))
    assert (clients_of(dataplane, ONE), clients_of(dataplane, TWO)) == (0, others)


def test_a_vip_without_backends_refuses() -> None:
    dataplane = with_clients(0)
    asyncio.run(made(dataplane, change(VipKey(V4, ONE), None), change(VipKey(V4, TWO), None)))
    assert dataplane.connect(V4, 1) is None


def test_a_dry_run_logs_each_change_and_makes_none(tmp_path: Path) -> None:
    changes = [
        change(VipKey(V4), VipSettings()),
        change(VipKey(V4, ONE), BackendEntry(0, kill=True)),
        change(VipKey(V4), None, VipSettings()),
    ]
    with capture_logs() as logs:
        asyncio.run(dry_run(tmp_path).apply(changes))
    assert [(one["op"], one["key"], one["value"]) for one in logs] == [
        ("create", str(V4), "16381 buckets"),
        ("create", str(VipKey(V4, ONE)), "weight 0, killing its flows"),
        ("delete", str(V4), ""),
    ]
    assert {one["event"] for one in logs} == {"dry run, change not made"}
