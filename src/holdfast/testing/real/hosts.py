"""A fleet in network namespaces: etcd and server in the core, an agent on every host, a workload behind each.

    with network() as net:
        fleet = Fleet(net, encapsulation="always")
        fleet.start()
        assert fleet.reaches(1, 3)

    core (etcd, server, inventory)  10.0.0.254  fd00::254
      │ bridge
      ├── h1  10.0.0.1  fd00::1 ── tap1 ── w1  10.28.0.1  fd00:28::1
      ├── h2  10.0.0.2  fd00::2 ── tap2 ── w2  10.28.0.2  fd00:28::2
      └── h3  10.0.0.3  fd00::3 ── tap3 ── w3  10.28.0.3  fd00:28::3

The processes are those that an operator runs; tests read a host's kernel with `ip` and `bridge`, not with our code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.testing.real.daemon import Daemon
from holdfast.testing.real.etcd import etcd_command
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.pinger import answers
from holdfast.testing.real.processes import Process
from holdfast.testing.real.segment import GATEWAY, HostSegment, route_by_gateway

REGION = Region()
STORE = "http://10.0.0.254:2379"
TABLE = 7500


def underlay(number: int, family: int = 4) -> str:
    return f"10.0.0.{number}" if family == 4 else f"fd00::{number:x}"


def address(number: int, family: int = 4) -> str:
    """Return the address of the workload with that number."""
    return f"10.28.0.{number}" if family == 4 else f"fd00:28::{number:x}"


def host(name: str, number: int, families: Sequence[int] = (4, 6)) -> WantedObject:
    """Return a host on the underlay addresses of that number."""
    bgp = Bgp(
        ipv4_address=f"{underlay(number)}/24" if 4 in families else "",
        ipv6_address=f"{underlay(number, 6)}/64" if 6 in families else "",
    )
    return wanted(HOST, REGION, name, Host.of(name, HostSpec(bgp=bgp)))


def workload(node: str, number: int, families: Sequence[int] = (4, 6)) -> WantedObject:
    """Return the workload of that number, on that host."""
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=f"w{number}",
        node=node,
        endpoint="eth0",
        interface_name=f"tap{number}",
        ip_networks=tuple(f"{address(number, family)}/{32 if family == 4 else 128}" for family in families),
    )
    return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec))


def gone(one: WantedObject) -> WantedObject:
    """Return the request to delete this object."""
    return WantedObject(one.kind, one.name)


class AgentProcess(Daemon):
    """`holdfast agent` of one host, in its namespace."""

    def __init__(self, name: str, namespace: Namespace, home: Path, **settings: str) -> None:
        self.name = name
        super().__init__("agent", namespace, home)
        self.configure(**settings)

    def configure(self, **settings: str) -> None:
        """Replace the agent's settings; they take effect at the next start."""
        own = {"host": self.name, "hold-down": "1s", "brake-count": "10000", **settings}
        section = ["agent:", *(f"  {key}: {value}" for key, value in own.items())]
        self.write_config([f"store: {{endpoints: ['{STORE}']}}", *section])

    def is_at_rest(self) -> bool:
        """Return True once it has compared everything and has nothing left to do."""
        return self.worker("peers").get("state") == "ok"

    def routes(self, family: int = 4) -> Mapping[str, str]:
        """Read our routing table with `ip`: per prefix the gateway or device, without the workloads' own gateway."""
        shown = self._json("ip", "-json", f"-{family}", "route", "show", "table", str(TABLE))
        ours = [one for one in shown if one["dst"] != GATEWAY[4]]
        return {one["dst"]: one.get("gateway") or one.get("via", {}).get("host") or one["dev"] for one in ours}

    def forwards(self, family: int = 4) -> Mapping[str, str]:
        """Read the forwarding entries of our tunnel: per MAC the underlay address of its host."""
        shown = self._json("bridge", "-json", "fdb", "show", "dev", f"holdfast{family}")
        return {one["mac"]: one["dst"] for one in shown if "dst" in one}

    def neighbours(self, family: int = 4) -> Mapping[str, str]:
        """Read the neighbours on our tunnel: per address its MAC."""
        device = ["dev", f"holdfast{family}", "nud", "permanent"]
        shown = self._json("ip", "-json", f"-{family}", "neighbour", "show", *device)
        return {one["dst"]: one["lladdr"] for one in shown}

    def nexthops(self) -> Mapping[str, int]:
        """Read our nexthop objects: per gateway the id."""
        shown = self._json("ip", "-json", "nexthop", "show", "protocol", "175")
        return {one["gateway"]: one["id"] for one in shown}

    def _json(self, *words: str) -> list[Any]:
        try:
            found: list[Any] = json.loads(self.namespace.run(*words) or "[]")
        except RuntimeError:
            return []  # the table or device does not exist yet
        return found


class Fleet:
    """A segment with etcd and server in its core, an inventory, and an agent on every host."""

    def __init__(self, net: NamespaceNetwork, *, count: int = 3, **settings: str) -> None:
        self.segment = HostSegment(net, "10.0.0.254/24", "fd00::254/64")
        self.workloads = {number: self._wire(number) for number in range(1, count + 1)}
        self.home = net.home / "fleet"
        self.home.mkdir()
        database = f"sqlite:///{self.home / 'inventory.db'}"
        self.engine = open_engine(database_url(database))
        migrate(self.engine)
        core = self.segment.core
        etcd = etcd_command("core", self.home / "etcd", STORE, "http://127.0.0.1:2380", options=["--unsafe-no-fsync"])
        self.etcd = Process(core.command(*etcd), log=self.home / "etcd.log")
        inventory = f"inventory: {{database: '{database}', poll-every: 200ms}}"
        self.server = Daemon("server", core, self.home / "server", [f"store: {{endpoints: ['{STORE}']}}", inventory])
        self.agents = {
            name: AgentProcess(name, namespace, self.home / name, **settings)
            for name, namespace in self.segment.hosts.items()
        }

    def _wire(self, number: int) -> Namespace:
        """Attach a host and plug its workload in; return the workload's namespace."""
        host = self.segment.attach(f"h{number}", f"{underlay(number)}/24", f"{underlay(number, 6)}/64")
        made = self.segment.net.namespace(f"w{number}")
        addresses = f"{address(number)}/32", f"{address(number, 6)}/128"
        self.segment.plug(host, f"tap{number}", made, "eth0", *addresses)
        route_by_gateway(made, "eth0", 4, 6)
        return made

    def start(self) -> None:
        self.etcd.start()
        self.server.start()
        for agent in self.agents.values():
            agent.start()

    def end(self) -> None:
        for process in (*(agent.process for agent in self.agents.values()), self.server.process, self.etcd):
            if process.alive:
                process.kill()
        self.engine.dispose()

    def change(self, *changes: WantedObject) -> None:
        """Edit the inventory as `holdfast apply` does."""
        Editor(self.engine, REGION).change(changes, who="test", why="")

    def begin(self, families: Sequence[int] = (4, 6)) -> None:
        """Add the hosts of the segment and their workloads to the inventory."""
        for number, name in enumerate(self.agents, 1):
            self.change(host(name, number, families), workload(name, number, families))

    def reaches(self, one: int, other: int, family: int = 4) -> bool:
        """Return True if a ping from one workload is answered by the other."""
        return answers(self.workloads[one], address(other, family))
