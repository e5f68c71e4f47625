"""Drills with real backups: etcd and database are restored or wiped under a running fleet, and no live route suffers.

The agents' dataplanes are sampled from before the restore until after the operator's decision.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import etcd_cluster
from holdfast.testing.real.etcd_snapshots import etcdutl_that_bumps, restore_snapshot, save_snapshot, wipe
from holdfast.testing.real.fleet import RealFleet, endpoint
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import Unavailable, wait_until
from tests.chaos.restores.harness import (
    PATIENCE,
    adopt_inventory,
    adopt_store,
    drill,
    edit_much,
    fleet_on,
    holdfast,
    identity,
    split_moves,
    wait_full,
    wait_healthy,
    wait_refilled,
    wait_told,
)

ADOPT_STORE = "holdfast store adopt --reason"
ADOPT_INVENTORY = "holdfast inventory adopt --keep"
_NOT_BY_ITSELF_S = 7.0
"""A daemon checks the store's identity every few seconds: by then each has had the chance to forget its verdict."""


SOAK = pytest.mark.soak
FEW = {"creates": 2, "moves": 1, "deletes": 1, "reuses": 1}
SOME = {"creates": 10, "moves": 4, "deletes": 1, "reuses": 1}
MANY = {"creates": 40, "moves": 10, "deletes": 3, "reuses": 2}


@pytest.mark.parametrize(
    ("edits", "how"),
    [
        pytest.param(MANY, {}, id="old", marks=SOAK),
        pytest.param(FEW, {}, id="young"),
        pytest.param(SOME, {"outgrown_by": 400}, id="outgrown", marks=SOAK),
    ],
)
def test_etcd_restored_from_a_snapshot_costs_no_route_and_is_refilled_without_a_person(
    fleet: RealFleet, tmp_path: Path, edits: dict[str, int], how: dict[str, int]
) -> None:
    snapshot = save_snapshot(fleet.cluster, tmp_path / "snapshot.db")
    edit_much(fleet, **edits)
    fleet.wait_settled()
    with drill(fleet):
        restore_snapshot(fleet.cluster, snapshot, **how)
        wait_refilled(fleet)
        wait_told(fleet, ADOPT_STORE)
        time.sleep(_NOT_BY_ITSELF_S)
        wait_told(fleet, ADOPT_STORE, within=1)
        adopt_store(fleet)
        wait_healthy(fleet)
        fleet.wait_settled()


def restore_bumped(fleet: RealFleet, snapshot: Path) -> None:
    try:
        etcdutl_that_bumps()
    except Unavailable as missing:
        pytest.skip(str(missing))
    restore_snapshot(fleet.cluster, snapshot, bumped_by=1_000_000)


@pytest.mark.soak
def test_etcd_restored_with_bumped_revisions_is_recognised(fleet: RealFleet, tmp_path: Path) -> None:
    snapshot = save_snapshot(fleet.cluster, tmp_path / "snapshot.db")
    edit_much(fleet, creates=10, moves=4, deletes=2, reuses=2)
    fleet.wait_settled()
    with drill(fleet):
        restore_bumped(fleet, snapshot)
        wait_refilled(fleet)
        wait_told(fleet, ADOPT_STORE)
        adopt_store(fleet)
        wait_healthy(fleet)
        fleet.wait_settled()


@pytest.mark.soak
def test_etcd_restored_onto_one_of_three_members_costs_no_route(postgres: Postgres, tmp_path: Path) -> None:
    with or_skip(etcd_cluster(3)) as cluster, fleet_on(cluster, postgres.create_database()) as fleet:
        snapshot = save_snapshot(cluster, tmp_path / "snapshot.db")
        edit_much(fleet, creates=20, moves=5, deletes=5, reuses=5)
        fleet.wait_settled()
        with drill(fleet):
            restore_snapshot(cluster, snapshot, members=1)
            wait_refilled(fleet, within=PATIENCE)
            wait_told(fleet, ADOPT_STORE)
            adopt_store(fleet)
            fleet.wait_settled()


@pytest.mark.soak
def test_a_wiped_etcd_is_refilled_without_a_person(fleet: RealFleet) -> None:
    epoch = epoch_of(fleet)
    with drill(fleet):
        wipe(fleet.cluster)
        wait_refilled(fleet)
        wait_healthy(fleet)
        fleet.wait_settled()
    assert epoch_of(fleet) > epoch


@pytest.mark.soak
def test_an_etcd_wiped_after_a_restore_and_again_is_refilled_without_a_person(fleet: RealFleet, tmp_path: Path) -> None:
    """Terms are revisions: those of a wiped store can have the numbers of earlier ones."""
    snapshot = save_snapshot(fleet.cluster, tmp_path / "snapshot.db")
    edit_much(fleet, **SOME)
    fleet.wait_settled()
    with drill(fleet):
        restore_snapshot(fleet.cluster, snapshot)
        wait_refilled(fleet)
        wait_told(fleet, ADOPT_STORE)
        adopt_store(fleet)
        wait_healthy(fleet)
        for _ in range(3):
            epoch = epoch_of(fleet)
            wipe(fleet.cluster)
            wait_full(fleet, above=epoch)
            wait_healthy(fleet)
        fleet.wait_settled()


def epoch_of(fleet: RealFleet) -> int:
    found = identity(fleet)
    assert found is not None
    return found.epoch


def wait_inventory_verdict(fleet: RealFleet) -> str:
    """Wait until `status` tells of a restored inventory and names both ways out; return the page."""
    return wait_told(fleet, ADOPT_INVENTORY)


@pytest.mark.soak
def test_after_a_restored_dump_new_edits_flow_and_nothing_else(
    fleet: RealFleet, postgres: Postgres, tmp_path: Path
) -> None:
    dump = postgres.dump(fleet.database, tmp_path / "inventory.dump")
    edit_much(fleet, creates=10, moves=4, deletes=1, reuses=1)
    fleet.wait_settled()
    before = fleet.stored()
    with drill(fleet):
        postgres.restore(fleet.database, dump)
        wait_inventory_verdict(fleet)
        fleet.place({max(fleet.live) + 1: 1})  # the fleet may have seen other drills
        new = fleet.wanted().keys() - before.keys()
        wait_until(lambda: before.items() < fleet.stored().items(), "the new workload is in the store", within=PATIENCE)
        assert fleet.stored().keys() - before.keys() <= new
        adopt_inventory(fleet, "store")
        wait_healthy(fleet)
        fleet.wait_settled()


@pytest.mark.parametrize("keep", ["store", pytest.param("inventory", marks=pytest.mark.soak)])
def test_a_dump_restored_after_200_edits_deletes_and_moves_nothing_before_an_operator_decides(
    fleet: RealFleet, postgres: Postgres, tmp_path: Path, keep: str
) -> None:
    dump = postgres.dump(fleet.database, tmp_path / "inventory.dump")
    dumped = dict(fleet.live)
    edit_much(fleet, creates=164, moves=30, deletes=2, reuses=2)
    fleet.wait_settled()
    before = fleet.stored()
    with drill(fleet) as record:
        postgres.restore(fleet.database, dump)
        wait_inventory_verdict(fleet)
        holdfast(fleet, "resync")  # an operator may well try this first
        time.sleep(_NOT_BY_ITSELF_S)
        wait_inventory_verdict(fleet)
        assert fleet.stored() == before
        assert record.faults() == []
        if keep == "store":
            adopt_inventory(fleet, keep)
            wait_healthy(fleet)
            fleet.wait_settled()
            assert fleet.stored() == before
    if keep == "inventory":
        fleet.live = dumped
        adopt_inventory(fleet, keep)
        wait_healthy(fleet)
        fleet.wait_settled()


@pytest.mark.soak
def test_C62_a_database_that_stands_still_for_7_seconds_is_no_restore_and_splits_no_move(
    fleet: RealFleet, postgres: Postgres
) -> None:
    fleet.place(dict.fromkeys(range(2001, 2021), 1))
    fleet.wait_settled()
    logged = [len(one.process.output) for one in fleet.members]  # the fleet may have seen other drills
    old = {number: endpoint(1, number).key for number in range(2001, 2021)}
    with drill(fleet) as record:
        record.expected = {name: {} for name in fleet.kernels}  # moves are wanted here
        fleet.place(dict.fromkeys(range(2001, 2011), 2))
        postgres.process.signal_tree(signal.SIGSTOP)
        try:
            time.sleep(7.5)
        finally:
            postgres.process.signal_tree(signal.SIGCONT)
        fleet.place(dict.fromkeys(range(2011, 2021), 2))
        fleet.wait_settled()
    wait_healthy(fleet)
    assert split_moves(fleet, {key: endpoint(2, number).key for number, key in old.items()}) == []
    logs = [one.process.output[begin:] for one, begin in zip(fleet.members, logged, strict=True)]
    assert [line for log in logs for line in events(log) if "restored" in line] == []


def events(log: str) -> list[str]:
    """Return the lines of a log that report a verdict on store or inventory."""
    return [line for line in log.splitlines() if "verdict" in line]
