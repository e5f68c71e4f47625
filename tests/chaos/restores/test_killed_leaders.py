"""Drills in which the leader is killed in the middle: of refilling a store, of an adoption."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.testing.real.etcd_snapshots import restore_snapshot, save_snapshot, wipe
from holdfast.testing.real.fleet import REGION, RealFleet
from holdfast.testing.real.processes import wait_until
from tests.chaos.restores.harness import (
    PATIENCE,
    adopt_store,
    drill,
    edit_much,
    holdfast,
    identity,
    is_full,
    wait_full,
    wait_healthy,
    wait_refilled,
    wait_told,
)

ADOPT_STORE = "holdfast store adopt --reason"
pytestmark = pytest.mark.soak
MANY = 1_500
"""Workloads of the fleet that is refilled: enough that a leader can be killed in between."""


def kill_leader(fleet: RealFleet, when: Callable[[], bool], what: str) -> None:
    """Kill -9 the leader as soon as the condition holds."""
    leader = fleet.wait_led(within=PATIENCE)[1]
    wait_until(when, what, within=PATIENCE)
    leader.kill()


def start_again(fleet: RealFleet) -> None:
    for server in fleet.members:
        if not server.process.alive:
            server.start()


def lacks_objects(fleet: RealFleet) -> bool:
    return bool(fleet.wanted().keys() - fleet.stored().keys())


def test_C65_a_leader_killed_while_it_refills_a_wiped_store_leaves_the_rest_to_the_next_one(fleet: RealFleet) -> None:
    fleet.place({number: 1 + number % 2 for number in range(1, MANY)})
    fleet.wait_settled()
    with drill(fleet):
        wipe(fleet.cluster)
        kill_leader(fleet, lambda: identity(fleet) is not None, "the store is named, and its filling begins")
        assert not is_full(fleet)
        assert lacks_objects(fleet), "the leader was killed too late for this drill"
        start_again(fleet)
        wait_refilled(fleet, within=PATIENCE)
        wait_full(fleet)
        wait_healthy(fleet)
        fleet.wait_settled()


def test_C65_a_leader_killed_while_it_refills_a_restored_store_leaves_the_verdict_to_the_next_one(
    fleet: RealFleet, tmp_path: Path
) -> None:
    snapshot = save_snapshot(fleet.cluster, tmp_path / "snapshot.db")
    edit_much(fleet, creates=MANY // 2, moves=10, deletes=5, reuses=5)
    fleet.wait_settled()
    with drill(fleet):
        restore_snapshot(fleet.cluster, snapshot)
        kill_leader(fleet, lambda: verdict_stands(fleet), "the verdict is recorded, and the refill begins")
        assert lacks_objects(fleet), "the leader was killed too late for this drill"
        start_again(fleet)
        wait_refilled(fleet, within=PATIENCE)
        wait_told(fleet, ADOPT_STORE)
        adopt_store(fleet)
        wait_healthy(fleet)
        fleet.wait_settled()


@pytest.mark.parametrize("moment", ["asked", "deletes", "raises the fence"])
def test_C66_a_leader_killed_in_the_middle_of_adopt_leaves_a_verdict_that_a_second_adopt_ends(
    fleet: RealFleet, tmp_path: Path, moment: str
) -> None:
    snapshot = save_snapshot(fleet.cluster, tmp_path / "snapshot.db")
    edit_much(fleet, creates=3, moves=2, deletes=2, reuses=2)
    fleet.wait_settled()
    with drill(fleet):
        restore_snapshot(fleet.cluster, snapshot)
        wait_refilled(fleet)
        wait_told(fleet, ADOPT_STORE)
        before, fence = len(fleet.stored()), fleet.inventory.fence(REGION.segment)
        moments = {
            "asked": lambda: True,
            "deletes": lambda: len(fleet.stored()) < before,
            "raises the fence": lambda: fleet.inventory.fence(REGION.segment) > fence,
        }
        words = ["store", "adopt", "--yes", "--reason", "the disk of etcd was lost"]
        killed = threading.Event()

        def ask() -> None:
            """Ask until it is accepted: a leader that has just taken over declines before its first complete pass."""
            while holdfast(fleet, *words).exit_code and not killed.wait(0.5):
                pass

        asking = threading.Thread(target=ask)
        asking.start()
        kill_leader(fleet, moments[moment], f"the leader {moment}")
        killed.set()
        asking.join()
        start_again(fleet)
        fleet.wait_led(within=PATIENCE)
        if verdict_stands(fleet):
            wait_told(fleet, ADOPT_STORE)
            adopt_store(fleet)
        wait_healthy(fleet)
        fleet.wait_settled()


def verdict_stands(fleet: RealFleet) -> bool:
    found = identity(fleet)
    return found is not None and found.verdict is not None
