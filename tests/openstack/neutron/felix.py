"""A small cloud for one test: its network, its hosts and what their Felix reports."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.testing.real.neutron import NeutronFleet
from holdfast.testing.real.processes import wait_until

_FELIX = "/calico/felix/v2/no-region/host"
ENDPOINTS = "/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/"
POLICIES = "/calico/resources/v3/projectcalico.org/networkpolicies/openstack/"
MIGRATIONS = "/calico/resources/v3/projectcalico.org/livemigrations/openstack/"
SUBNETS = "/calico/dhcp/v2/no-region/subnet/"


class Cloud:
    def __init__(self, fleet: NeutronFleet, number: int, *, agent: bool = True) -> None:
        """Without `agent` the host has no live Felix: no server is needed."""
        self.fleet = fleet
        self.number = number
        self.host = f"compute-{number}-a"
        self.network = fleet.post("networks", {"name": f"net{number}"})
        cidr = {"cidr": f"10.{number}.0.0/24", "ip_version": 4, "network_id": self.network["id"]}
        self.subnet = fleet.post("subnets", {**cidr, "dns_nameservers": ["192.0.2.53"]})
        if agent:
            self.boot(self.host)

    def boot(self, host: str) -> None:
        """Report a live Felix on that host, and wait until Neutron shows its agent alive."""
        self.report(host)
        self.eventually(lambda: self.agent(host).get("alive") is True, f"agent of {host} is alive")

    def report(self, host: str, late: timedelta = timedelta(0)) -> None:
        """Write the report of a Felix whose clock is that late."""
        now = (datetime.now(UTC) - late).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.fleet.put_key(f"{_FELIX}/{host}/status", {"time": now, "uptime": 1.0, "first_update": False})

    def register_agent(self, host: str) -> None:
        """Make the agent of a host as networking-calico does, through RabbitMQ: no server is needed."""
        columns = "id, agent_type, `binary`, topic, host, admin_state_up, created_at, started_at"
        values = f"UUID(), 'Calico per-host agent (felix)', 'calico-felix', 'N/A', '{host}', 1"
        later = "UTC_TIMESTAMP() + INTERVAL 1 HOUR"  # alive for as long as a test takes, however slow this machine is
        now = f"UTC_TIMESTAMP(), UTC_TIMESTAMP(), {later}, '{{}}', 0"
        self.fleet.sql(
            f"INSERT INTO agents ({columns}, heartbeat_timestamp, configurations, `load`) VALUES ({values}, {now})"
        )

    def agent(self, host: str) -> Any:
        return next(iter(self.fleet.get(f"agents?host={host}")), {})

    def port(self, host: str | None = None, **more: Any) -> Any:
        """Create a port of a new workload on that host; None is the first one."""
        device = {"device_id": str(uuid.uuid4()), "device_owner": "compute:nova"}
        body = {"network_id": self.network["id"], "binding:host_id": host or self.host, **device, **more}
        return self.fleet.post("ports", body)

    def outside(self) -> Any:
        """Create an external network with a subnet for floating IPs."""
        outside = self.fleet.post("networks", {"name": "outside", "router:external": True})
        cidr = f"172.24.{self.number}.0/24"
        self.fleet.post("subnets", {"network_id": outside["id"], "ip_version": 4, "cidr": cidr})
        return outside

    def show(self, port: Any) -> Any:
        return self.fleet.get(f"ports/{port['id']}")

    def status_key(self, port: Any, host: str | None = None) -> str:
        device = port["device_id"]
        return f"{_FELIX}/{host or self.host}/workload/openstack/openstack%2f{device}/endpoint/{port['id']}"

    def up(self, port: Any, host: str | None = None) -> None:
        self.fleet.put_key(self.status_key(port, host), {"status": "up"})

    def down(self, port: Any, host: str | None = None) -> None:
        self.fleet.put_key(self.status_key(port, host), {"status": "down"})

    def gone(self, port: Any, host: str | None = None) -> None:
        self.fleet.delete_key(self.status_key(port, host))

    def endpoint_key(self, port: Any, host: str | None = None) -> str:
        parts = (host or self.host, "openstack", port["device_id"], port["id"])
        return ENDPOINTS + "-".join(part.replace("-", "--") for part in parts)

    def endpoint(self, port: Any, host: str | None = None) -> Any:
        """The endpoint of a port in etcd; None while there is none."""
        key = self.endpoint_key(port, host)
        return self.fleet.store(key).get(key)

    def stored(self, port: Any, host: str | None = None) -> Any:
        """Wait for the endpoint of a port in etcd."""
        self.eventually(lambda: self.endpoint(port, host) is not None, "the endpoint is stored")
        return self.endpoint(port, host)

    def handled(self, port: Any) -> None:
        """Record a change of a port that Neutron's API did not make, and wait until the syncer has handled it."""
        self.fleet.sql(f"INSERT INTO holdfast_outbox (kind, resource) VALUES ('port', '{port['id']}')")
        waiting = f"SELECT id FROM holdfast_outbox WHERE resource = '{port['id']}'"
        self.eventually(lambda: not self.fleet.sql(waiting), "the change is settled")

    def restart_server(self) -> None:
        """Kill neutron-periodic-workers with the server in it, start it again, and wait until it leads."""
        led = self.terms()
        self.fleet.workers.kill_tree()
        self.fleet.workers.start()
        self.eventually(lambda: self.terms() > led, "the server leads")
        self.eventually(self.fleet.resynced, "the server answers")

    def terms(self) -> int:
        """How often the server that Neutron starts has become the leader."""
        return self.fleet.workers.output.count("leadership gained")

    def in_sync(self) -> None:
        """Wait until `holdfast openstack check` finds no difference."""
        found = ""

        def no_difference() -> bool:
            nonlocal found
            code, found = self.fleet.check()
            return code == 0

        try:
            self.eventually(no_difference, "Neutron and etcd are equal")
        except AssertionError as error:
            raise AssertionError(f"{found}\n{error}") from error

    def eventually(self, condition: Callable[[], bool], what: str, within: float = 180.0) -> None:
        try:
            wait_until(condition, what, within=within)
        except TimeoutError as error:
            raise AssertionError(
                f"{error}; the end of the workers' log:\n{self.fleet.workers.output[-6000:]}"
            ) from error
