"""Faults through a real Neutron: nothing committed is lost, and no report reaches a port that is bound elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from holdfast.testing.fault import fault
from holdfast.testing.real.neutron import NeutronFleet, RefusedByNeutron
from holdfast.testing.real.processes import children
from tests.openstack.neutron.felix import MIGRATIONS, POLICIES, SUBNETS, Cloud
from tests.openstack.neutron.server_process import frozen, server_pid


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
    server = server_pid(cloud.fleet)
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
    assert server_pid(cloud.fleet) != server


@pytest.fixture
def stopped_api(cloud: Cloud) -> Iterator[NeutronFleet]:
    """A fleet whose API the test starts itself, with or without a protection; it is whole again afterwards."""
    fleet = cloud.fleet
    fleet.api.kill_tree()
    yield fleet
    if fleet.api.alive:
        fleet.api.kill_tree()
    fleet.start_api()


@fault("C19", without="holdfast.openstack.outbox:record", sees=(AssertionError, "the endpoint is stored"))
def test_C19_an_api_killed_after_its_commit_loses_nothing(cloud: Cloud, stopped_api: NeutronFleet) -> None:
    stopped_api.start_api()
    port = cloud.port()
    stopped_api.api.kill_tree()

    cloud.eventually(lambda: cloud.endpoint(port) is not None, "the endpoint is stored", within=90)


def test_a_port_whose_status_neutron_cannot_write_does_not_keep_others_from_theirs(cloud: Cloud) -> None:
    bad, good = cloud.port(), cloud.port()
    for port in (bad, good):
        cloud.up(port)
    cloud.eventually(lambda: cloud.show(bad)["status"] == cloud.show(good)["status"] == "ACTIVE", "both are ACTIVE")

    with cloud.fleet.refusing_down(bad["id"]):
        for port in (bad, good):
            cloud.down(port)
        cloud.eventually(lambda: cloud.show(good)["status"] == "DOWN", "the good port is DOWN")
        cloud.eventually(lambda: "Neutron refused it" in cloud.fleet.workers.output, "the refusal is logged")
        assert cloud.show(bad)["status"] == "ACTIVE"

    cloud.eventually(lambda: cloud.show(bad)["status"] == "DOWN", "the bad port is DOWN after a retry")


def test_C24_a_status_from_a_host_that_the_port_is_not_on_is_ignored(cloud: Cloud) -> None:
    other = f"{cloud.host}-other"
    cloud.boot(other)
    port, second = cloud.port(), cloud.port()

    cloud.up(port, other)
    cloud.up(second)

    cloud.eventually(lambda: cloud.show(second)["status"] == "ACTIVE", "the other report was handled")
    assert cloud.show(port)["status"] == "DOWN"


@fault(
    "C24",
    without="holdfast.openstack.bound_host:is_bound_to",
    returns=True,
    sees=(AssertionError, r"\(reached, status\) == \(False, "),
)
def test_C24_a_status_that_was_decided_before_the_port_moved_does_not_reach_it(cloud: Cloud) -> None:
    """A status worker that stood still between its decision and its write, while the port went to another host."""
    target = f"{cloud.host}-target"
    cloud.boot(target)
    port = cloud.port()
    cloud.fleet.put(f"ports/{port['id']}", {"binding:host_id": target})
    cloud.up(port, target)
    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE at its new host")

    with frozen(cloud.fleet, "endpoint-status"):
        reached = cloud.fleet.set_port_status(port["id"], cloud.host, "ERROR")
        status = cloud.show(port)["status"]

    assert (reached, status) == (False, "ACTIVE")


@fault(
    "C31",
    without="holdfast.openstack.observed:NeutronObserved._with_status",
    by="tests.openstack.neutron.without_protection:as_recorded",
    sees=(AssertionError, "the port is ACTIVE again"),
)
def test_C31_a_port_that_neutron_set_down_is_active_again_while_felix_reports_it_up(
    cloud: Cloud, tested_server: Callable[[], None]
) -> None:
    tested_server()
    port = cloud.port()
    cloud.up(port)
    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE")

    with frozen(cloud.fleet, "endpoint-status"):
        cloud.fleet.put(f"ports/{port['id']}", {"binding:profile": {"changed": "yes"}})
        assert cloud.show(port)["status"] == "DOWN"

    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE again", within=90)


def test_C24_C31_a_live_migration_keeps_the_source_and_tells_nova_once(cloud: Cloud) -> None:
    target = f"{cloud.host}-target"
    cloud.boot(target)
    port = cloud.port()
    path, plugged, unplugged = f"ports/{port['id']}", "network-vif-plugged", "network-vif-unplugged"

    def told(*expected: str) -> None:
        """Wait until Nova was told this about the port, and nothing else."""
        cloud.eventually(lambda: len(_plugs(cloud, port)) >= len(expected), f"Nova knows {expected}")
        assert _plugs(cloud, port) == list(expected)

    cloud.up(port)
    told(plugged)
    cloud.fleet.post(f"{path}/bindings", {"host": target})
    cloud.fleet.put(path, {"binding:profile": {"migrating_to": target}})
    cloud.stored(port, target)
    assert cloud.endpoint(port) is not None
    name = cloud.endpoint_key(port, target).rpartition("/")[2]
    assert MIGRATIONS + name in cloud.fleet.store(MIGRATIONS)
    told(plugged, unplugged, plugged)  # Neutron binds the port again, at its source

    cloud.up(port, target)
    told(plugged, unplugged, plugged, plugged)
    cloud.up(port, target)
    _handled(cloud)
    told(plugged, unplugged, plugged, plugged)

    cloud.fleet.put(f"{path}/bindings/{target}/activate")
    cloud.eventually(lambda: cloud.endpoint(port) is None, "the source's endpoint is gone")
    cloud.eventually(lambda: not cloud.fleet.store(MIGRATIONS + name), "the migration is over")
    told(plugged, unplugged, plugged, plugged, unplugged, plugged)
    cloud.fleet.put_key(cloud.status_key(port), {"status": "error"})
    cloud.gone(port)
    _handled(cloud)
    shown = cloud.show(port)
    assert (shown["status"], shown["binding:host_id"]) == ("ACTIVE", target)
    assert cloud.endpoint(port, target) is not None
    told(plugged, unplugged, plugged, plugged, unplugged, plugged)


def _plugs(cloud: Cloud, port: dict[str, str]) -> list[str]:
    return [name for name in cloud.fleet.nova.names(port["id"]) if name.startswith("network-vif-")]


def _handled(cloud: Cloud) -> None:
    """Wait until a later report has come through to Nova: those before it were handled."""
    later = cloud.port()
    cloud.up(later)
    cloud.eventually(lambda: _plugs(cloud, later) == ["network-vif-plugged"], "a later report was handled")


def test_a_port_deleted_by_raw_sql_leaves_etcd_with_the_next_resync(cloud: Cloud) -> None:
    port = cloud.port()
    cloud.stored(port)

    cloud.fleet.sql(f"DELETE FROM ports WHERE id = '{port['id']}'")
    cloud.fleet.resync()

    cloud.eventually(lambda: cloud.endpoint(port) is None, "the database witnessed the delete")


@fault("C41", without="holdfast.openstack.mirror:expect_delete", sees=(AssertionError, "all three are gone"))
def test_C41_a_delete_of_what_no_resync_has_recorded_yet_reaches_etcd(cloud: Cloud, stopped_api: NeutronFleet) -> None:
    """The objects are as networking-calico left them: stored and wanted, without mirror rows."""
    stopped_api.start_api()
    fleet, group = cloud.fleet, cloud.fleet.post("security-groups", {"name": "short-lived"})
    port = cloud.port(security_groups=[group["id"]])
    keys = [cloud.endpoint_key(port), f"{POLICIES}ossg.default.{group['id']}", f"{SUBNETS}{cloud.subnet['id']}"]
    cloud.eventually(lambda: all(fleet.store(key) for key in keys), "all three are stored")
    cloud.in_sync()
    fleet.sql(f"DELETE FROM holdfast_mirror WHERE resource IN ('{port['id']}','{group['id']}','{cloud.subnet['id']}')")

    fleet.delete(f"ports/{port['id']}")
    fleet.delete(f"security-groups/{group['id']}")
    fleet.delete(f"subnets/{cloud.subnet['id']}")

    try:
        cloud.eventually(lambda: not any(fleet.store(key) for key in keys), "all three are gone", within=90)
    finally:
        for key in keys:  # without the protection they are held for ever
            fleet.delete_key(key)


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

    cloud.fleet.start_database()
    cloud.eventually(lambda: _deleted(cloud, port), "Neutron answers again")

    cloud.eventually(lambda: cloud.endpoint(port) is None, "the delete reaches etcd")


def _deleted(cloud: Cloud, port: dict[str, str]) -> bool:
    try:
        cloud.fleet.delete(f"ports/{port['id']}")
    except RefusedByNeutron:
        return False
    return True


def test_an_agent_whose_report_is_gone_is_down_and_one_that_reports_again_is_alive(cloud: Cloud) -> None:
    other = f"{cloud.host}-dying"
    cloud.boot(other)

    cloud.fleet.delete_key(f"/calico/felix/v2/no-region/host/{other}/status")
    cloud.eventually(lambda: cloud.agent(other)["alive"] is False, "the agent is down")
    assert cloud.agent(cloud.host)["alive"] is True

    cloud.boot(other)


def test_the_warning_about_a_felix_with_a_late_clock_names_the_clock(cloud: Cloud) -> None:
    late = f"{cloud.host}-late"

    def is_named() -> bool:
        cloud.report(late, timedelta(hours=1))  # one report does not tell a clock from a delay
        lines = (line for line in cloud.fleet.workers.output.splitlines() if '"report is stale"' in line)
        return any(f'"host": "{late}"' in line and "the host's clock is off" in line for line in lines)

    cloud.eventually(is_named, "the warning names the clock")
    assert cloud.agent(late)["alive"] is True
