"""Drills with other histories of the inventory: a promoted replica that lost commits, a copied SQLite file; and with a
store that another system uses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.inventory.edit.editor import Editor
from holdfast.store.identity import StoreVerdict
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.daemon import HOLDFAST
from holdfast.testing.real.etcd import etcd_cluster
from holdfast.testing.real.fleet import REGION, endpoint, host, real_fleet, stored_objects
from holdfast.testing.real.postgres import postgres_cluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup, server_group
from tests.chaos.restores.harness import (
    PATIENCE,
    adopt_inventory,
    adopt_store,
    calico_objects,
    configured,
    copy_of,
    drill,
    edit_much,
    fleet_on,
    holdfast,
    holdfast_on,
    identity,
    put,
    status,
    wait_healthy,
    wait_told,
)

_NOT_BY_ITSELF_S = 7.0
FOREIGN = 15


def command(settings: Sequence[str]) -> Sequence[str]:
    """Return the command line of `holdfast server` with these settings."""
    return [*HOLDFAST, "server", *(word for setting in settings for word in ("--set", setting))]


@pytest.mark.soak
def test_a_promoted_replica_that_lost_commits_deletes_and_moves_nothing(tmp_path: Path) -> None:
    name = tmp_path / "current"  # moves from the primary to the replica, as a virtual address does
    with or_skip(postgres_cluster()) as primary, primary.replica() as replica, or_skip(etcd_cluster(1)) as cluster:
        address = primary.create_database().replace(str(primary.home), str(name))
        name.symlink_to(primary.home)
        with fleet_on(cluster, address) as fleet:
            wait_until(lambda: replica.has_replayed(primary), "the replica has caught up", within=PATIENCE)
            replica.disconnect()
            edit_much(fleet, creates=20, moves=5, deletes=5, reuses=5)
            fleet.wait_settled()
            before = fleet.stored()
            with drill(fleet):
                primary.kill()
                replica.promote()
                name.unlink()
                name.symlink_to(replica.home)
                wait_told(fleet, "holdfast inventory adopt --keep")
                time.sleep(_NOT_BY_ITSELF_S)
                assert fleet.stored() == before
                adopt_inventory(fleet, "store")
                wait_healthy(fleet)
                fleet.wait_settled()
                assert fleet.stored() == before


@pytest.mark.soak
def test_C70_a_copied_sqlite_file_under_the_next_leader_is_recognised(tmp_path: Path) -> None:
    original, copy = tmp_path / "inventory.db", tmp_path / "copy.db"
    with or_skip(etcd_cluster(1)) as cluster, fresh_engine(f"sqlite:///{original}") as engine:
        editor = Editor(engine, REGION)
        editor.change([host(1), *(endpoint(1, number) for number in range(1, 31))], who="drill")
        with server_group(cluster, ["s1"], command=command, settings=on(original), region=REGION) as first:
            wait_stored(first, 31)
            copy_of(original, copy)
            editor.change([endpoint(1, number) for number in range(31, 41)], who="drill")
            wait_stored(first, 41)
            first.members[0].stop()
        before = stored_objects(cluster)
        with server_group(cluster, ["s2"], command=command, settings=on(copy), region=REGION) as second:
            wait_until(lambda: is_latched(second), "the copy is recognised", within=PATIENCE)
            time.sleep(2)
            assert stored_objects(cluster) == before


def on(file: Path) -> dict[str, str]:
    return {"inventory.database": f"sqlite:///{file}", "inventory.poll_every": "500ms"}


def wait_stored(group: ServerGroup, count: int) -> None:
    wait_until(lambda: len(stored_objects(group.cluster)) == count, f"the store has {count} objects", within=PATIENCE)


def is_latched(group: ServerGroup) -> bool:
    found = identity(group)
    return found is not None and found.verdict is not None and found.verdict.name == RESTORED


RESTORED = StoreVerdict.INVENTORY_RESTORED.value


@pytest.mark.soak
def test_the_first_start_beside_calico_changes_nothing_before_an_operator_has_imported_and_adopted(
    tmp_path: Path,
) -> None:
    foreign = calico_objects(FOREIGN)
    with or_skip(etcd_cluster(1)) as cluster:
        put(cluster, foreign)
        with real_fleet(cluster, f"sqlite:///{tmp_path}/inventory.db") as fleet:
            fleet.place({1: 1, 2: 2})
            wait_told(fleet, "holdfast import", "holdfast store adopt --reason")
            time.sleep(_NOT_BY_ITSELF_S)
            assert fleet.stored() == foreign
            shown = holdfast(fleet, "diff", "inventory")
            assert shown.exit_code == 1
            assert "compute-7" in shown.output
            flags = configured(fleet)
            tried = holdfast_on(flags, "import", "--dry-run")
            assert tried.exit_code == 0, tried.output
            assert fleet.stored() == foreign
            done = holdfast_on(flags, "import", "--reason", "Calico was here first")
            assert done.exit_code == 0, done.output
            adopt_store(fleet)
            wait_until(lambda: fleet.stored().keys() == fleet.wanted().keys(), "all is in the store", within=PATIENCE)
            wait_until(lambda: not fleet.wrong_routes(), "the agents have what is wanted", within=PATIENCE)
            # The hosts of Calico have no agents, which is a problem of its own.
            wait_until(lambda: "adopt" not in status(fleet).output, "status has no verdict any more", within=PATIENCE)
            assert holdfast(fleet, "diff", "inventory").exit_code == 0
            assert foreign.items() <= fleet.stored().items()  # to the byte, as Calico wrote them
