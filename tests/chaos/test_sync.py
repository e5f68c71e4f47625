"""Inventory to store on real processes: PostgreSQL, etcd, servers; killed wherever it hurts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.leader import LEADER
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fault import fault
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup, ServerProcess
from tests.chaos.harness import patient_store, servers
from tests.chaos.inventory_history import lost, violations
from tests.chaos.killed_syncers import change
from tests.server.harness import differing

CHAINS = 4
"""Inventories whose syncers are killed side by side: most of a life is waiting for the databases."""
_LONG_S = 1_500
_ROOT = Path(__file__).parents[2]
_NUMBERS = itertools.count(os.getpid())


def stored(cluster: EtcdCluster, region: Region) -> dict[bytes, bytes]:
    """The endpoints of a region as the store has them."""

    async def read() -> dict[bytes, bytes]:
        store = patient_store(cluster)
        pages = [page async for page in store.list(ENDPOINT.prefix(region))]
        await store.close()
        return {entry.key: entry.value for page in pages for entry in page.entries}

    return asyncio.run(read())


def wanted(inventory: SqlInventory) -> dict[bytes, bytes]:
    snapshot = inventory.snapshot()
    rows = snapshot.read(None, 1_000_000)
    snapshot.close()
    return {row.key: row.doc for row in rows}


def lead(cluster: EtcdCluster, region: Region) -> None:
    async def put() -> None:
        store = patient_store(cluster)
        await store.put(LEADER.key(region, "leader"), b"{}")
        await store.close()

    asyncio.run(put())


@contextlib.contextmanager
def chain(cluster: EtcdCluster, postgres: Postgres, rounds: int, seed: int = 19) -> Iterator[Callable[[], int]]:
    """Syncers of one inventory, killed one after the other, with a database and a region of their own.

    What it gives does it all, judges it, and tells how many were killed.
    """
    address, region = postgres.create_database(), Region(f"kills-{next(_NUMBERS)}")
    lead(cluster, region)
    with fresh_engine(address) as engine:

        def kill() -> int:
            words = [address, cluster.endpoints[0], region.name, str(rounds), str(seed)]
            command = [sys.executable, "-m", "tests.chaos.killed_syncers", *words]
            done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=_LONG_S)
            assert done.returncode == 0, done.stderr[-4000:]
            inventory = SqlInventory(engine)
            assert inventory.waiting() == 0
            assert differing(region, stored(cluster, region), wanted(inventory)) == []
            assert not (found := violations(engine, cluster.endpoints[0], region)), found
            return int(done.stdout.split()[-1])

        yield kill


@fault(
    "C19",
    without="holdfast.server.syncer.outbox:Outbox.fetch",
    by="tests.chaos.without_protection:forgotten_when_read",
    sees=(AssertionError, r"differing\(region, stored\(cluster, region\), wanted\(inventory\)\)"),
)
def test_C19_syncers_killed_between_commit_and_write_lose_nothing(started: EtcdCluster, postgres: Postgres) -> None:
    with chain(started, postgres, 25) as kill:
        assert kill() > 8, "hardly any of them was killed"


@pytest.mark.soak
def test_C19_a_thousand_syncers_killed_between_commit_and_write_lose_nothing(
    started: EtcdCluster, postgres: Postgres
) -> None:
    with contextlib.ExitStack() as held, ThreadPoolExecutor(CHAINS) as pool:
        chains = [held.enter_context(chain(started, postgres, 1_400 // CHAINS, seed)) for seed in range(CHAINS)]
        assert sum(pool.map(lambda kill: kill(), chains)) >= 1_000


def test_servers_bring_every_acknowledged_change_to_the_store_while_they_and_the_database_are_killed(
    cluster: EtcdCluster, postgres: Postgres
) -> None:
    address = postgres.create_database()
    settings = {"inventory.database": address.replace("+psycopg", ""), "inventory.poll_every": "500ms"}
    random = Random(19)
    with fresh_engine(address) as engine, servers(cluster, 2, settings=settings) as fleet:
        editor, inventory = Editor(engine, fleet.region), SqlInventory(engine)
        acknowledged = [change(editor, fleet.region, random) for _ in range(4)]
        kill_syncer(fleet.leader())
        acknowledged += [change(editor, fleet.region, random) for _ in range(4)]
        without_database(postgres, editor, fleet, random)
        acknowledged += [change(editor, fleet.region, random) for _ in range(4)]
        kill_syncer(fleet.leader())
        assert_synced(fleet, inventory)
        term, old = fleet.wait_led()
        (follower,) = fleet.others(old)
        wait_until(lambda: has_syncer(follower), f"{follower.name} has a syncer")
        assert "does not lead, so its syncer is idle" in follower.ask("syncer", "held").error
        acknowledged.append(change(editor, fleet.region, random))
        old.kill()
        editor.change([WantedObject(ENDPOINT, "holdfast-w1-eth0")], who="chaos")
        fleet.wait_led(after=term)
        assert_synced(fleet, inventory)
        assert lost(engine, acknowledged) == []
        assert not (found := violations(engine, cluster.endpoints[0], fleet.region)), found
        assert resynced(fleet.leader()) == 0
        old.start()


def test_a_server_without_an_inventory_says_what_to_set(fleet: ServerGroup) -> None:
    leader = fleet.leader()
    wait_until(lambda: has_syncer(leader), f"{leader.name} has a syncer")
    for command in ("resync", "explain", "pause"):
        assert "set inventory.database" in leader.ask("syncer", command).error


def kill_syncer(leader: ServerProcess) -> None:
    wait_until(lambda: has_syncer(leader), f"{leader.name} has a syncer")
    os.kill(leader.worker("syncer"), signal.SIGKILL)


def without_database(postgres: Postgres, editor: Editor, fleet: ServerGroup, random: Random) -> None:
    """The database is killed and started again. Meanwhile nobody is told that a change was made."""
    postgres.kill()
    try:
        with pytest.raises(DatabaseAway):
            change(editor, fleet.region, random)
    finally:
        postgres.start()


def resynced(leader: ServerProcess) -> int:
    """Return the number of differences that `holdfast resync` finds. A leader's syncer starts after its elector."""
    wait_until(lambda: not leader.ask("syncer", "held").error, f"the syncer of {leader.name} leads")
    words = ["resync", "--runtime", str(leader.home / "run"), "-o", "json"]
    said = CliRunner().invoke(main, words)
    assert said.exit_code == 0, said.stderr
    return int(json.loads(said.stdout)["differed"])


def has_syncer(server: ServerProcess) -> bool:
    return not server.ask("syncer", "metrics").error


def assert_synced(fleet: ServerGroup, inventory: SqlInventory) -> None:
    wait_until(lambda: inventory.waiting() == 0, "the outbox is empty", within=90)
    assert differing(fleet.region, stored(fleet.cluster, fleet.region), wanted(inventory)) == []
