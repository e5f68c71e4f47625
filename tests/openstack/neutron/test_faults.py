"""Faults through a real Neutron: nothing committed is lost, and no report reaches a port that is bound elsewhere."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from holdfast.testing.real.neutron import NeutronFleet, RefusedByNeutron
from holdfast.testing.real.processes import wait_until
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


def test_a_supervisor_killed_while_ports_change_loses_nothing(cloud: Cloud) -> None:
    kept = cloud.port()
    cloud.stored(kept)
    before = _server(cloud.fleet)
    os.kill(before, signal.SIGSTOP)

    made = cloud.port()
    cloud.fleet.delete(f"ports/{kept['id']}")
    os.kill(before, signal.SIGKILL)

    cloud.stored(made)
    cloud.eventually(lambda: cloud.endpoint(kept) is None, "the deleted endpoint is gone")
    assert _server(cloud.fleet) != before


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
    cloud.fleet.delete_key(key)


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
