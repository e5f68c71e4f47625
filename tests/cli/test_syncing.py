"""An operator at a server with an inventory: what differs and why, who wanted it, pausing, and what the brake holds."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from holdfast.cli import main
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import IDENTITY, OBJECTS
from holdfast.lab.fleet import server
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup, server_group
from tests.chaos.harness import answer

ENDPOINTS = 30
OBJECTS_IN_STORE = ENDPOINTS + 2  # host r1, and one more host of a test
NAME = "holdfast-w7-eth0"


class ServerHarness:
    """One server, its inventory, and an operator beside it."""

    def __init__(self, fleet: ServerGroup, engine: Engine, folder: Path) -> None:
        self.fleet = fleet
        self.engine = engine
        self.folder = folder
        self.inventory = SqlInventory(engine)
        self.server = fleet.members[0]
        self._settings = [
            f"inventory.database={engine.url.render_as_string(hide_password=False)}",
            f"store.endpoints={','.join(fleet.cluster.endpoints)}",
            f"store.region={fleet.region.name}",
        ]

    def edit(self, *words: str) -> Result:
        """A command on the inventory itself."""
        return CliRunner().invoke(main, [*words, *(word for one in self._settings for word in ("--set", one))])

    def ask(self, *words: str) -> Result:
        """A command to the server."""
        return CliRunner().invoke(main, [*words, "--runtime", str(self.server.home / "run")])

    def apply(self, text: str, reason: str = "") -> None:
        file = self.folder / "fleet.yaml"
        file.write_text(text, encoding="utf-8")
        done = self.edit("apply", "-f", str(file), "--wait", "--reason", reason)
        assert done.exit_code == 0, done.stderr

    def key(self, number: int) -> bytes:
        return ENDPOINT.key(self.fleet.region, EndpointName("r1", "holdfast", f"w{number}", "eth0"))

    def meddle(self, number: int, value: bytes | None) -> None:
        """Change the store directly, as a foreign client would."""

        self._put(self.key(number), value)

    def _put(self, key: bytes, value: bytes | None) -> None:
        async def change() -> None:
            store = EtcdStore(Connection(tuple(self.fleet.cluster.endpoints)))
            await (store.delete(key) if value is None else store.put(key, value))
            await store.close()

        asyncio.run(change())

    def stray(self, number: int) -> None:
        """Another controller writes an endpoint of which this inventory never knew."""
        name = EndpointName("r9", "openstack", f"vm{number}", "eth0")
        thing = Endpoint.of(self.fleet.region, EndpointSpec(**name._asdict()))
        self._put(ENDPOINT.key(self.fleet.region, name), ENDPOINT.encode(thing))

    def bring_back(self, name: str) -> None:
        assert self.edit("undo", "endpoint", name).exit_code == 0
        wait_until(lambda: self.inventory.waiting() == 0, f"{name} is in the store again")

    @property
    def held(self) -> dict[str, int]:
        found: dict[str, int] = answer(self.server, "syncer", "held")["gates"]
        return found


def endpoint(number: int, gateway: str = "10.28.0.1") -> str:
    spec = f"{{node: r1, workload: w{number}, endpoint: eth0, ipv4Gateway: {gateway}, ipNetworks: [10.28.1.{number}]}}"
    return f"- {{kind: endpoint, network: red, spec: {spec}}}\n"


FLEET = (
    "- {kind: host, name: r1, spec: {}}\n"
    "- {kind: network, name: red, spec: {prefixes: [10.28.0.0/16]}}\n" + "".join(map(endpoint, range(ENDPOINTS)))
)


UNHURRIED = {
    "server.ttl": "15s",
    "server.renew_every": "2s",
    "server.renew_deadline": "10s",
    "server.rpc_timeout": "5s",
}
"""Nobody follows this server: it must not lose its leadership, and decline a command, when the machine is busy."""


@pytest.fixture(scope="module")
def site(one_etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHarness]:
    folder = tmp_path_factory.mktemp("site")
    address = f"sqlite:///{folder}/inventory.db"
    settings = {"inventory.database": address, "inventory.poll_every": "500ms", **UNHURRIED}
    made = server_group(one_etcd, 1, command=server.command, settings=settings)
    with fresh_engine(address) as engine, or_skip(made) as fleet:
        fleet.wait_led()
        site = ServerHarness(fleet, engine, folder)
        wait_until(lambda: not site.server.ask("syncer", "held").error, "the syncer works")
        site.apply(FLEET, "first light")
        wait_until(lambda: site.server.says("store is filled"), "both have their id")
        yield site


def test_explain_goes_from_the_edit_to_the_key_in_the_store(site: ServerHarness) -> None:
    site.apply(endpoint(7, "10.28.0.254"), "new router")
    told = site.ask("explain", "endpoint", NAME).stdout.splitlines()
    assert told[0] == f"endpoint {NAME} is wanted and in the store."
    rows = {line[:12].strip(): line[12:] for line in told[2:]}
    assert rows["EDIT"].startswith("changed 20")
    assert rows["EDIT"].endswith(": “new router”")
    assert f"{site.key(7).decode()}: revision " in rows["STORE"]
    assert rows["STORE"].endswith("(version 2), in sync")
    assert rows["GATES"].startswith("leader, identity, sync and intent are open, term ")
    assert "“first light”" in rows["HISTORY"]
    assert rows["UNDO"] == f"holdfast undo endpoint {NAME}"


def test_history_has_the_edit_and_the_syncers_decision(site: ServerHarness) -> None:
    site.apply(endpoint(8, "10.28.0.254"), "new router")
    told = site.ask("history", "endpoint", "holdfast-w8-eth0").stdout
    wanted, done = told.index("changed by"), told.index("replace endpoint r1-holdfast-w8-eth0: applied")
    assert "“new router”" in told[wanted:done], "first the wish, then the deed"


def test_explain_and_history_show_a_migration_also_after_its_end(site: ServerHarness) -> None:
    name = f"{site.fleet.region.name}-r2"  # hosts of all regions stand side by side in the store
    move = f"- {{kind: migration, name: holdfast-w5-eth0, spec: {{to: {name}}}}}\n"
    site.apply(f"- {{kind: host, name: {name}, spec: {{}}}}\n{move}", "rack 12 is hot")
    told = site.ask("explain", "migration", "holdfast-w5-eth0").stdout
    assert told.startswith("migration holdfast-w5-eth0 is wanted and in the store.")
    assert "“rack 12 is hot”" in told
    for kind in ("migration", "endpoint"):
        assert f"MIGRATION   r1 → {name}\n" in site.ask("explain", kind, "holdfast-w5-eth0").stdout
    site.apply(endpoint(5).replace("node: r1", f"node: {name}"), "cut over")
    told = site.ask("explain", "migration", "holdfast-w5-eth0").stdout
    assert told.startswith("migration holdfast-w5-eth0 is not wanted and not in the store.")
    assert f"“the endpoint is on {name} now; cut over”" in told
    assert "UNDO" not in told, "what has arrived does not begin again"
    told = site.ask("history", "migration", "holdfast-w5-eth0").stdout
    ended = told.index("deleted by")
    assert told.index("created by") < ended < told.index("delete migration ", ended), "the wish, then the deed"
    site.apply(endpoint(5))
    assert "\nUNDO        holdfast undo migration " in site.ask("explain", "migration", "holdfast-w5-eth0").stdout
    assert site.edit("delete", "host", name).exit_code == 0
    wait_until(lambda: site.inventory.waiting() == 0, "the site is as it was")


def test_explain_of_an_unknown_object_is_one_sentence(site: ServerHarness) -> None:
    told = site.ask("explain", "endpoint", "holdfast-never-eth0")
    assert (told.exit_code, told.stderr) == (
        1,
        "Error: the inventory has no endpoint holdfast-never-eth0, and had none before\n",
    )


def test_a_foreign_change_in_the_store_is_shown_and_fixed(site: ServerHarness) -> None:
    site.meddle(1, None)
    site.meddle(2, b'{"spec":{}}')
    shown = site.ask("diff", "inventory", "--network", "red")
    assert shown.exit_code == 1
    assert [line for line in shown.stdout.splitlines() if not line.startswith("  ")] == [
        "create   endpoint r1-holdfast-w1-eth0",
        "replace  endpoint r1-holdfast-w2-eth0",
    ]
    assert '  +    "ipv4Gateway": "10.28.0.1",' in shown.stdout
    assert shown.stderr.splitlines()[0] == "2 differ: 1 to create, 1 to replace, 0 to delete"
    mended = json.loads(site.ask("resync", "--kind", "endpoints", "-o", "json").stdout)
    assert (mended["differed"], mended["held"]) == (2, 0)
    again = site.ask("diff", "inventory")
    assert (again.exit_code, again.stderr) == (0, "inventory and store are in sync\n")


def test_a_dry_run_of_resync_changes_nothing(site: ServerHarness) -> None:
    site.meddle(3, None)
    for _ in range(2):
        looked = json.loads(site.ask("resync", "--dry-run", "-o", "json").stdout)
        assert (looked["dry_run"], looked["create"], looked["looked"]) == (True, 1, OBJECTS_IN_STORE)
    assert site.ask("resync").exit_code == 0


def test_a_paused_syncer_names_the_operator_and_applies_what_it_held_after_the_pause(site: ServerHarness) -> None:
    assert "syncer is paused" in site.ask("pause", "worker", "syncer", "--reason", "store upgrade").stderr
    try:
        done = site.edit("delete", "endpoint", "holdfast-w9-eth0", "--reason", "gone")
        assert done.exit_code == 0, done.stderr
        wait_until(lambda: site.held == {"intent": 1}, "the delete is held")
        told = site.ask("explain", "endpoint", "holdfast-w9-eth0").stdout
        assert told.startswith("endpoint holdfast-w9-eth0 is not wanted but still in the store.")
        assert "held by intent: " in told
        assert "“store upgrade”" in told
        assert "To release: holdfast resume worker syncer" in told
    finally:
        assert site.ask("resume", "worker", "syncer").stderr == "worker syncer goes on\n"
    wait_until(lambda: site.inventory.waiting() == 0, "the delete went through")
    site.bring_back("holdfast-w9-eth0")


def test_an_inventory_without_a_fleet_id_writes_nothing_until_it_is_assigned(site: ServerHarness) -> None:
    with site.engine.begin() as connection:
        connection.execute(IDENTITY.delete())
    wait_until(lambda: site.server.says("a wrong or emptied database"), "the syncer sees whose inventory it is not")
    assert site.edit("delete", "endpoint", "holdfast-w10-eth0").exit_code == 0
    wait_until(lambda: site.held.get("identity") == 1, "the delete is held")
    assert (
        "To release: inventory.database naming the right one, or: holdfast inventory assign"
        in site.ask("explain", "endpoint", "holdfast-w10-eth0").stdout
    )
    assigned = site.edit("inventory", "assign", "--reason", "restored from backup")
    assert (assigned.exit_code, "restored from backup" in assigned.stderr) == (0, True)
    wait_until(lambda: site.inventory.waiting() == 0, "the delete went through")
    site.bring_back("holdfast-w10-eth0")


def test_what_another_controller_wrote_is_shown_and_an_operator_decides(site: ServerHarness) -> None:
    for number in (1, 2):
        site.stray(number)
    site.meddle(4, None)
    shown = site.ask("diff", "inventory")
    assert shown.exit_code == 1
    assert [line for line in shown.stdout.splitlines() if not line.startswith("  ")] == [
        "Drift, to be fixed:",
        "create   endpoint r1-holdfast-w4-eth0",
        "Unwitnessed, held, because no recorded change of the inventory deleted it:",
        "delete   endpoint r9-openstack-vm1-eth0",
        "delete   endpoint r9-openstack-vm2-eth0",
    ]
    assert shown.stderr.splitlines()[:2] == [
        "3 differ: 1 to create, 0 to replace, 2 to delete",
        "drift: 1, moves: 0, recorded deletes: 0, unwitnessed: 2",
    ]
    done = json.loads(site.ask("resync", "-o", "json").stdout)
    assert (done["differed"], done["held"], done["groups"]["unwitnessed"]) == (3, 2, 2)
    wait_until(lambda: site.ask("status").exit_code == 1, "status says that somebody is needed")
    status = site.ask("status")
    assert re.search(
        r"syncer +held by witness for [\d:]+: no recorded change of the inventory deleted it; 2 in all\n"
        r" +To inspect: holdfast diff inventory\n +To release: holdfast gate allow syncer/witness --once",
        status.stdout,
    ), status.stdout
    told = site.ask("explain", "endpoint", "openstack-vm1-eth0").stdout
    assert "To leave it alone for good: holdfast ignore endpoint r9-openstack-vm1-eth0 --reason …" in told
    assert site.edit("ignore", "endpoint", "r9-openstack-vm1-eth0", "--reason", "theirs").exit_code == 0
    wait_until(lambda: site.held == {"witness": 1}, "what is ignored is not held")
    for wrong in (["--for", "30m"], ["--once", "--for", "30m"]):
        assert (
            "never released for a time" in site.ask("gate", "allow", "syncer/witness", *wrong, "--reason", "x").stderr
        )
    allowed = site.ask("gate", "allow", "syncer/witness", "--once", "--yes", "--reason", "junk")
    assert (allowed.exit_code, "endpoint r9-openstack-vm2-eth0" in allowed.stdout) == (0, True), allowed.stderr
    wait_until(lambda: site.ask("diff", "inventory").exit_code == 0, "what was shown is deleted")
    same = site.ask("diff", "inventory")
    assert (same.exit_code, same.stderr) == (
        0,
        "inventory and store are in sync\n1 ignored: see holdfast ignore --list\n",
    )
    assert site.edit("ignore", "endpoint", "r9-openstack-vm1-eth0", "--stop").exit_code == 0
    wait_until(lambda: site.held == {"witness": 1}, "it is held again")
    assert site.ask("gate", "allow", "syncer/witness", "--once", "--yes", "--reason", "junk").exit_code == 0
    wait_until(lambda: site.ask("diff", "inventory").exit_code == 0, "the site is as it was")


def test_an_emptied_database_deletes_nothing_until_an_operator_allows_it(site: ServerHarness) -> None:
    with site.engine.begin() as connection:
        connection.execute(OBJECTS.delete())
    held = json.loads(site.ask("resync", "-o", "json").stdout)
    assert (held["delete"], held["held"]) == (OBJECTS_IN_STORE, OBJECTS_IN_STORE)
    shown = site.ask("diff", "inventory", "--network", "red")
    assert shown.stderr.splitlines()[-1] == f"network red: {ENDPOINTS} of {ENDPOINTS} endpoints would be deleted (100%)"
    assert site.held == {"witness": OBJECTS_IN_STORE}, "no delete of it was recorded"
    allowed = site.ask("gate", "allow", "syncer/witness", "--once", "--yes", "--reason", "the site is closed")
    assert allowed.exit_code == 0, allowed.stderr
    wait_until(lambda: site.held == {"brake": OBJECTS_IN_STORE}, "they are too many")
    wait_until(lambda: "held by brake" in site.ask("status").stdout, "status says that somebody is needed")
    status = site.ask("status")
    assert re.search(
        r"syncer +held by brake for [\d:]+: would delete (\d+) of \1 endpoints \(100\.0%\): less than half would stay; "
        r"100% of network red\n +To inspect: holdfast diff inventory --network red\n"
        r" +To release: holdfast gate allow syncer/brake --once",
        status.stdout,
    ), status.stdout
    allowed = site.ask("gate", "allow", "syncer/brake", "--once", "--yes", "--reason", "the site is closed")
    assert allowed.exit_code == 0, allowed.stderr
    wait_until(lambda: site.ask("diff", "inventory").exit_code == 0, "everything that was held is deleted")
    assert site.held == {}
