"""Faults through a real Neutron: nothing committed is lost, and no report reaches a port that is bound elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.fault import fault
from holdfast.testing.real.neutron import NeutronFleet, RefusedByNeutron
from holdfast.testing.real.processes import children, wait_until
from tests.openstack.neutron.felix import MIGRATIONS, Cloud


def _server(fleet: NeutronFleet) -> int:
    """The pid of `holdfast server`, which neutron-periodic-workers started."""
    config = str(fleet.home / "holdfast.yaml").encode()

    def find() -> list[int]:
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_server(path, config)]

    wait_until(lambda: bool(find()), "holdfast server runs", within=120)
    return find()[0]


def _is_server(process: Path, config: bytes) -> bool:
    try:
        words = process.joinpath("cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return config in words and b"holdfast.cli" in words


def _tree(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for each in found:
        found += children(each)
    return found


def test_C19_a_server_killed_before_it_wrote_what_was_committed_loses_nothing(cloud: Cloud) -> None:
    deleted, changed = cloud.port(), cloud.port()
    cloud.stored(deleted)
    before = cloud.stored(changed)
    server = _server(cloud.fleet)
    for pid in (server, cloud.fleet.worker_pid("syncer")):  # the supervisor would replace the stopped worker
        os.kill(pid, signal.SIGSTOP)

    made = cloud.port()
    cloud.fleet.delete(f"ports/{deleted['id']}")
    pair = f"10.{cloud.number}.0.201"
    cloud.fleet.put(f"ports/{changed['id']}", {"allowed_address_pairs": [{"ip_address": pair}]})
    assert cloud.endpoint(made) is None
    assert cloud.endpoint(deleted) is not None
    assert cloud.endpoint(changed) == before
    for pid in _tree(server):
        os.kill(pid, signal.SIGKILL)

    cloud.stored(made)
    cloud.eventually(lambda: cloud.endpoint(deleted) is None, "the deleted endpoint is gone")
    cloud.eventually(lambda: cloud.stored(changed)["spec"].get("allowedIps") == [f"{pair}/32"], "the pair is stored")
    assert _server(cloud.fleet) != server


@pytest.fixture
def stopped_api(cloud: Cloud) -> Iterator[NeutronFleet]:
    """A fleet whose API the test starts itself, with or without a protection; it is whole again afterwards."""
    fleet = cloud.fleet
    fleet.api.kill_tree()
    yield fleet
    if fleet.api.alive:
        fleet.api.kill_tree()
    fleet.start_api()


@fault("C19", without="holdfast.openstack.outbox:record")
def test_C19_an_api_killed_after_its_commit_loses_nothing(cloud: Cloud, stopped_api: NeutronFleet) -> None:
    stopped_api.start_api()
    port = cloud.port()
    stopped_api.api.kill_tree()

    cloud.eventually(lambda: cloud.endpoint(port) is not None, "the endpoint is stored", within=30)


def test_a_port_whose_status_neutron_cannot_write_does_not_keep_others_from_theirs(cloud: Cloud) -> None:
    bad, good = cloud.port(), cloud.port()
    for port in (bad, good):
        cloud.up(port)
    cloud.eventually(lambda: cloud.show(bad)["status"] == cloud.show(good)["status"] == "ACTIVE", "both are ACTIVE")
    refuse = f"IF NEW.id = '{bad['id']}' AND NEW.status = 'DOWN' THEN SIGNAL SQLSTATE '45000'; END IF"
    cloud.fleet.sql(f"CREATE TRIGGER refuse BEFORE UPDATE ON ports FOR EACH ROW {refuse}")

    try:
        for port in (bad, good):
            cloud.down(port)
        cloud.eventually(lambda: cloud.show(good)["status"] == "DOWN", "the good port is DOWN")
        cloud.eventually(lambda: "Neutron refused it" in cloud.fleet.workers.output, "the refusal is logged")
        assert cloud.show(bad)["status"] == "ACTIVE"
    finally:
        cloud.fleet.sql("DROP TRIGGER refuse")

    cloud.eventually(lambda: cloud.show(bad)["status"] == "DOWN", "the bad port is DOWN after a retry")


def test_C24_a_status_from_a_host_that_the_port_is_not_on_is_ignored(cloud: Cloud) -> None:
    other = f"{cloud.host}-other"
    cloud.boot(other)
    port, second = cloud.port(), cloud.port()

    cloud.up(port, other)
    cloud.up(second)

    cloud.eventually(lambda: cloud.show(second)["status"] == "ACTIVE", "the other report was handled")
    assert cloud.show(port)["status"] == "DOWN"


def test_C31_a_port_that_neutron_set_down_is_active_again_while_felix_reports_it_up(cloud: Cloud) -> None:
    port = cloud.port()
    cloud.up(port)
    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE")

    cloud.fleet.put(f"ports/{port['id']}", {"binding:profile": {"changed": "yes"}})

    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE again")


def test_a_live_migration_keeps_the_source_and_tells_nova_once(cloud: Cloud) -> None:
    target = f"{cloud.host}-target"
    cloud.boot(target)
    port = cloud.port()
    cloud.up(port)
    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE")
    path, nova = f"ports/{port['id']}", cloud.fleet.nova

    cloud.fleet.post(f"{path}/bindings", {"host": target})
    cloud.fleet.put(path, {"binding:profile": {"migrating_to": target}})
    cloud.stored(port, target)
    assert cloud.endpoint(port) is not None
    name = cloud.endpoint_key(port, target).rpartition("/")[2]
    assert MIGRATIONS + name in cloud.fleet.store(MIGRATIONS)
    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the source is ACTIVE again")
    cloud.eventually(lambda: nova.names(port["id"]).count("network-vif-plugged") == 2, "both are told to Nova")

    cloud.up(port, target)
    cloud.eventually(lambda: nova.names(port["id"]).count("network-vif-plugged") == 3, "Nova is told of the arrival")
    cloud.fleet.put(f"{path}/bindings/{target}/activate")
    cloud.eventually(lambda: cloud.endpoint(port) is None, "the source's endpoint is gone")
    cloud.gone(port)

    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE at the target")
    assert cloud.show(port)["binding:host_id"] == target
    assert cloud.endpoint(port, target) is not None


def test_a_port_deleted_by_raw_sql_leaves_etcd_with_the_next_resync(cloud: Cloud) -> None:
    port = cloud.port()
    cloud.stored(port)

    cloud.fleet.sql(f"DELETE FROM ports WHERE id = '{port['id']}'")
    cloud.fleet.resync()

    cloud.eventually(lambda: cloud.endpoint(port) is None, "the database witnessed the delete")


def test_C43_an_endpoint_that_neutron_never_had_is_held(cloud: Cloud) -> None:
    port = cloud.port()
    stored = cloud.stored(port)
    strange = {**port, "id": "11111111-2222-3333-4444-555555555555"}
    key = cloud.endpoint_key(strange)
    spec = {**stored["spec"], "endpoint": strange["id"]}
    metadata = {**stored["metadata"], "name": key.rpartition("/")[2]}
    cloud.fleet.put_key(key, {**stored, "spec": spec, "metadata": metadata})

    cloud.fleet.resync()

    assert cloud.endpoint(strange) is not None
    code, shown = cloud.fleet.check()
    assert code == 1
    assert "Unwitnessed, held" in shown
    assert strange["id"].replace("-", "--") in shown
    cloud.fleet.delete_key(key)
    cloud.eventually(lambda: cloud.fleet.check()[0] == 0, "nothing differs")


def test_a_database_that_is_away_delays_changes_and_loses_none(cloud: Cloud) -> None:
    port = cloud.port()
    cloud.stored(port)
    database = cloud.fleet.database.process
    database.kill()
    cloud.eventually(lambda: "database is unreachable" in cloud.fleet.workers.output, "the server waits")

    database.start()
    cloud.fleet.sql("SELECT 1", patient=True)
    cloud.eventually(lambda: _deleted(cloud, port), "Neutron answers again")

    cloud.eventually(lambda: cloud.endpoint(port) is None, "the delete reaches etcd")


def _deleted(cloud: Cloud, port: dict[str, str]) -> bool:
    try:
        cloud.fleet.delete(f"ports/{port['id']}")
    except RefusedByNeutron:
        return False
    return True


def test_an_agent_whose_report_is_gone_is_down(cloud: Cloud) -> None:
    other = f"{cloud.host}-dying"
    cloud.boot(other)

    cloud.fleet.delete_key(f"/calico/felix/v2/no-region/host/{other}/status")

    cloud.eventually(lambda: cloud.agent(other)["alive"] is False, "the agent is down")
