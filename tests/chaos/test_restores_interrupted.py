"""Drills in which the leader is killed in the middle: of refilling a store, of an adoption."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.real.etcd_snapshots import etcdctl, restore_snapshot, save_snapshot, wipe
from holdfast.testing.real.fleet import RealFleet
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import Unavailable, wait_until
from tests.chaos.restores import (
    PATIENCE,
    Fleets,
    adopt_store,
    drill,
    edit_much,
    holdfast,
    identity,
    wait_healthy,
    wait_refilled,
    wait_told,
)

ADOPT_STORE = "holdfast store adopt --reason"
pytestmark = pytest.mark.soak
MANY = 1_500
"""Workloads of the fleet that is refilled: enough that a leader can be killed in between."""


@pytest.fixture(scope="module")
def fleets(postgres: Postgres) -> Iterator[Fleets]:
    kept = Fleets(postgres)
    yield kept
    kept.close()


@pytest.fixture
def fleet(fleets: Fleets) -> RealFleet:
    try:
        etcdctl()
    except Unavailable as missing:
        pytest.skip(str(missing))
    one = fleets.whole()
    for server in one.members:
        if not server.process.alive:
            server.start()
    return one


def kill_the_leader_once(fleet: RealFleet, term: int, when: str) -> None:
    """Wait until a server leads after that term and the store has begun to fill, then kill -9 that server."""
    _, leader = fleet.wait_led(after=term, within=PATIENCE)
    wait_until(lambda: len(fleet.stored()) > 0 or identity(fleet) is not None, when, within=PATIENCE)
    leader.kill()
    leader.start()


def test_C65_a_leader_killed_while_it_refills_a_wiped_store_leaves_the_rest_to_the_next_one(fleet: RealFleet) -> None:
    fleet.place({number: 1 + number % 2 for number in range(1, MANY)})
    fleet.wait_settled()
    with drill(fleet):
        wipe(fleet.cluster)
        kill_the_leader_once(fleet, 0, "the store is being refilled")
        wait_refilled(fleet, within=PATIENCE)
        wait_healthy(fleet)
        fleet.wait_settled()
    found = identity(fleet)
    assert found is not None
    assert not found.filling


def test_C65_a_leader_killed_while_it_refills_a_restored_store_leaves_the_verdict_to_the_next_one(
    fleet: RealFleet, tmp_path: Path
) -> None:
    snapshot = save_snapshot(fleet.cluster, tmp_path / "snapshot.db")
    edit_much(fleet, creates=MANY // 2, moves=10, deletes=5, reuses=5)
    fleet.wait_settled()
    with drill(fleet):
        restore_snapshot(fleet.cluster, snapshot)
        before = len(fleet.stored())
        wait_until(lambda: len(fleet.stored()) > before, "the store is being refilled", within=PATIENCE)
        leader = fleet.leader()
        leader.kill()
        leader.start()
        wait_refilled(fleet, within=PATIENCE)
        wait_told(fleet, ADOPT_STORE)
        adopt_store(fleet)
        wait_healthy(fleet)
        fleet.wait_settled()


@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.6, 0.9, 1.2, 1.5])
def test_C66_a_leader_killed_in_the_middle_of_adopt_leaves_a_verdict_that_a_second_adopt_ends(
    fleet: RealFleet, tmp_path: Path, after_s: float
) -> None:
    snapshot = save_snapshot(fleet.cluster, tmp_path / "snapshot.db")
    edit_much(fleet, creates=30, moves=5, deletes=5, reuses=5)
    fleet.wait_settled()
    with drill(fleet):
        restore_snapshot(fleet.cluster, snapshot)
        wait_refilled(fleet, within=PATIENCE)
        wait_told(fleet, ADOPT_STORE)
        leader = fleet.leader()
        words = ["store", "adopt", "--yes", "--reason", "the disk of etcd was lost"]
        asking = threading.Thread(target=holdfast, args=(fleet, *words))
        asking.start()
        time.sleep(after_s)
        leader.kill()
        asking.join()
        leader.start()
        fleet.wait_led(within=PATIENCE)
        if verdict_stands(fleet):
            wait_told(fleet, ADOPT_STORE)
            adopt_store(fleet)
        wait_healthy(fleet)
        fleet.wait_settled()


def verdict_stands(fleet: RealFleet) -> bool:
    found = identity(fleet)
    return found is not None and found.verdict is not None
