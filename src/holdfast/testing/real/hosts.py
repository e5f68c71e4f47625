"""Hosts in network namespaces, on one segment, each with a workload behind it; and all that makes them a fleet.

    with network() as net:
        fleet = Fleet(net, encapsulation="always")
        fleet.start()
        assert fleet.reaches(1, 3)

    core (etcd, server, inventory)  10.0.0.254  fd00::254
      │ bridge
      ├── h1  10.0.0.1  fd00::1 ── tap1 ── w1  10.28.0.1  fd00:28::1
      ├── h2  10.0.0.2  fd00::2 ── tap2 ── w2  10.28.0.2  fd00:28::2
      └── h3  10.0.0.3  fd00::3 ── tap3 ── w3  10.28.0.3  fd00:28::3

The processes are those that an operator runs; what is in a host's kernel is read with `ip` and `bridge`, not with ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
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
from holdfast.runtime.control import Request, ask
from holdfast.testing.real.etcd import etcd_binary
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.pinger import answers
from holdfast.testing.real.processes import Process, children, run, running, wait_until

HOLDFAST = (sys.executable, "-P", "-m", "holdfast.cli")
PATIENCE = 180.0
REGION = Region()
STORE = "http://10.0.0.254:2379"
TABLE = 7500
_FORWARDS = "for way in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 1 >/proc/sys/net/$way; done"


def underlay(number: int, family: int = 4) -> str:
    return f"10.0.0.{number}" if family == 4 else f"fd00::{number:x}"


def address(number: int, family: int = 4) -> str:
    """Of the workload of that number."""
    return f"10.28.0.{number}" if family == 4 else f"fd00:28::{number:x}"


def host(name: str, number: int, families: Sequence[int] = (4, 6)) -> WantedObject:
    """A host on the underlay addresses of that number."""
    bgp = Bgp(
        ipv4_address=f"{underlay(number)}/24" if 4 in families else "",
        ipv6_address=f"{underlay(number, 6)}/64" if 6 in families else "",
    )
    return wanted(HOST, REGION, name, Host.of(name, HostSpec(bgp=bgp)))


def workload(node: str, number: int, families: Sequence[int] = (4, 6)) -> WantedObject:
    """The workload of that number, on that host."""
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
    """The wish that this object be no more."""
    return WantedObject(one.kind, one.name)


class HostSegment:
    """The namespaces, wired: nothing runs in them."""

    def __init__(self, net: NamespaceNetwork, count: int = 3) -> None:
        self.net = net
        self.core = net.namespace("core")
        self.core.batch(
            [
                "link add segment type bridge",
                "link set segment up",
                "address add 10.0.0.254/24 dev segment",
                "address add fd00::254/64 dev segment nodad",
            ]
        )
        self.hosts: dict[str, Namespace] = {}
        self.workloads: dict[int, Namespace] = {}
        for number in range(1, count + 1):
            self.attach(f"h{number}", number)
            self.plug(f"h{number}", number)

    def attach(self, name: str, number: int) -> Namespace:
        """A new host on the segment."""
        made = self.hosts[name] = self.net.namespace(name)
        made.run("sh", "-c", _FORWARDS)
        run(["ip", "link", "add", "eth0", "netns", made.system_name, "type", "veth", *self._end(f"to-{name}")])
        self.core.batch([f"link set to-{name} master segment", f"link set to-{name} up"])
        addresses = [
            f"address add {underlay(number)}/24 dev eth0",
            f"address add {underlay(number, 6)}/64 dev eth0 nodad",
        ]
        made.batch([*addresses, "link set eth0 up"])
        return made

    def _end(self, name: str) -> list[str]:
        return ["peer", "name", name, "netns", self.core.system_name]

    def plug(self, on: str, number: int) -> Namespace:
        """A workload on a host, with a cable named tapN; its gateway is the same on every host."""
        there = self.hosts[on]
        made = self.workloads[number] = self.net.namespace(f"w{number}")
        ends = ["netns", there.system_name, "type", "veth", "peer", "name", "eth0", "netns", made.system_name]
        run(["ip", "link", "add", f"tap{number}", *ends])
        there.batch(
            [
                f"address add 169.254.1.1/32 dev tap{number}",
                f"address add fe80::1/64 dev tap{number} nodad",
                f"link set tap{number} up",
            ]
        )
        made.batch(
            [
                f"address add {address(number)}/32 dev eth0",
                f"address add {address(number, 6)}/128 dev eth0 nodad",
                "link set eth0 up",
                "route add 169.254.1.1 dev eth0",
                "route add default via 169.254.1.1",
                "route add default via fe80::1 dev eth0",
            ]
        )
        return made


class AgentProcess:
    """`holdfast agent` of one host, in its namespace."""

    def __init__(self, name: str, namespace: Namespace, home: Path, **settings: str) -> None:
        self.name = name
        self.namespace = namespace
        self.home = home
        self.file = home / "holdfast.yaml"
        home.mkdir(parents=True)
        self.configure(**settings)
        self.process = Process(namespace.command(*HOLDFAST, "agent", "--config", str(self.file)), log=home / "log")

    def configure(self, **settings: str) -> None:
        """What is told here holds from the next start on."""
        own = {"host": self.name, "hold-down": "1s", "brake-count": "10000", **settings}
        lines = [
            f"paths: {{state: {self.home}/state, runtime: {self.home}/run}}",
            f"store: {{endpoints: ['{STORE}']}}",
            "agent:",
            *(f"  {key}: {value}" for key, value in own.items()),
        ]
        self.file.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        self.process.start()

    def kill(self) -> None:
        """SIGKILL for all of it."""
        self.process.pause()  # nobody is started between the count and the kill
        pids = [self.process.pid, *children(self.process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        wait_until(lambda: not any(map(running, pids)), "all of the agent's processes are gone")

    def ask(self, do: str, **args: object) -> Any:
        """What its worker answers; None while it does not."""
        request = Request("tell", {"do": do, "args": args}, "peers")
        answer = asyncio.run(ask(self.home / "run" / "agent.sock", request))
        return None if answer.error else answer.result

    def said(self, *words: str) -> str:
        """What `holdfast` prints about it."""
        return run([*HOLDFAST, *words, "--runtime", str(self.home / "run")])

    def is_at_rest(self) -> bool:
        """Whether it has compared everything and has nothing left to do."""
        answer = asyncio.run(ask(self.home / "run" / "agent.sock", Request("status")))
        workers = [] if answer.error else answer.result["workers"]
        return any(one["name"] == "peers" and one.get("state") == "ok" for one in workers)

    def routes(self, family: int = 4) -> Mapping[str, str]:
        """Our table, as `ip` shows it: prefixes, and the gateway or device that each leads to."""
        shown = self._json("ip", "-json", f"-{family}", "route", "show", "table", str(TABLE))
        return {one["dst"]: one.get("gateway") or one.get("via", {}).get("host") or one["dev"] for one in shown}

    def forwards(self, family: int = 4) -> Mapping[str, str]:
        """MACs behind our tunnel, and the host that each is at."""
        shown = self._json("bridge", "-json", "fdb", "show", "dev", f"holdfast{family}")
        return {one["mac"]: one["dst"] for one in shown if "dst" in one}

    def neighbours(self, family: int = 4) -> Mapping[str, str]:
        """Addresses on our tunnel, and the MAC that each has."""
        device = ["dev", f"holdfast{family}", "nud", "permanent"]
        shown = self._json("ip", "-json", f"-{family}", "neighbour", "show", *device)
        return {one["dst"]: one["lladdr"] for one in shown}

    def nexthops(self) -> Mapping[str, int]:
        """Gateways, and the number of the nexthop object of each."""
        shown = self._json("ip", "-json", "nexthop", "show", "protocol", "175")
        return {one["gateway"]: one["id"] for one in shown}

    def _json(self, *words: str) -> list[Any]:
        try:
            found: list[Any] = json.loads(self.namespace.run(*words) or "[]")
        except RuntimeError:
            return []  # a table or a device that is not there yet
        return found


class Fleet:
    """A segment with etcd and server in its core, an inventory, and an agent on every host."""

    def __init__(self, net: NamespaceNetwork, *, count: int = 3, **settings: str) -> None:
        self.segment = HostSegment(net, count)
        self.home = net.home / "fleet"
        self.home.mkdir()
        self.database = f"sqlite:///{self.home / 'inventory.db'}"
        self.engine = open_engine(database_url(self.database))
        migrate(self.engine)
        self.etcd = Process(self.segment.core.command(*self._etcd()), log=self.home / "etcd.log")
        self.server = Process(self.segment.core.command(*self._server()), log=self.home / "server.log")
        self.agents = {
            name: AgentProcess(name, namespace, self.home / name, **settings)
            for name, namespace in self.segment.hosts.items()
        }

    def _etcd(self) -> Sequence[str]:
        peers = "http://127.0.0.1:2380"
        return [
            *(etcd_binary(), "--name", "core", "--data-dir", str(self.home / "etcd")),
            *("--listen-client-urls", STORE, "--advertise-client-urls", STORE),
            *(
                "--listen-peer-urls",
                peers,
                "--initial-advertise-peer-urls",
                peers,
                "--initial-cluster",
                f"core={peers}",
            ),
            *("--heartbeat-interval", "10", "--election-timeout", "100", "--unsafe-no-fsync"),
        ]

    def _server(self) -> Sequence[str]:
        file = self.home / "server.yaml"
        file.write_text(
            f"paths: {{state: {self.home}/server/state, runtime: {self.home}/server/run}}\n"
            f"store: {{endpoints: ['{STORE}']}}\n"
            f"inventory: {{database: '{self.database}', poll-every: 200ms}}\n"
        )
        return [*HOLDFAST, "server", "--config", str(file)]

    def start(self) -> None:
        self.etcd.start()
        self.server.start()
        for agent in self.agents.values():
            agent.start()

    def end(self) -> None:
        for process in (*(agent.process for agent in self.agents.values()), self.server, self.etcd):
            if process.alive:
                process.kill()
        self.engine.dispose()

    def change(self, *wishes: WantedObject) -> None:
        """What `holdfast apply` does."""
        Editor(self.engine, REGION).change(wishes, who="test", why="")

    def begin(self, families: Sequence[int] = (4, 6)) -> None:
        """The inventory knows the hosts of the segment and their workloads."""
        for number, name in enumerate(self.agents, 1):
            self.change(host(name, number, families), workload(name, number, families))

    def workload(self, number: int) -> Namespace:
        return self.segment.workloads[number]

    def reaches(self, one: int, other: int, family: int = 4) -> bool:
        """Whether one workload's ping comes back from the other."""
        return answers(self.workload(one), address(other, family))
