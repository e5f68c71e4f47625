"""Helpers of the agent's end-to-end tests: a fleet, the expected kernel state, a monitor of route changes."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from functools import partial

from holdfast.agent.tunnels import link_local, tunnel_mac
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointStatusName
from holdfast.netlink.netns import inside
from holdfast.testing.real.daemon import PATIENCE
from holdfast.testing.real.hosts import REGION, AgentProcess, Fleet, address, underlay
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.processes import Process, wait_until

wait = partial(wait_until, within=PATIENCE)

Others = Mapping[str, int]
"""Hosts, each with the number of its underlay address."""
Placed = Mapping[int, str]
"""Workloads, each with its host."""


@contextlib.contextmanager
def fleet(net: NamespaceNetwork, encapsulation: str, count: int = 3) -> Iterator[Fleet]:
    """Run hosts with their workloads, all of them programmed, until the block ends."""
    made = Fleet(net, count=count, encapsulation=encapsulation)
    try:
        made.start()
        made.begin()
        for agent in made.agents.values():
            wait(partial(_has_routes, agent, count), f"{agent.name} has its routes")
        yield made
    finally:
        made.end()


def _has_routes(agent: AgentProcess, count: int) -> bool:
    return len(agent.routes()) == len(agent.routes(6)) == count


class ExpectedKernel:
    """The expected kernel state of one host, computed independently of the agent."""

    def __init__(self, agent: AgentProcess, others: Others, placed: Placed, *, vxlan: bool) -> None:
        self._agent = agent
        self._others = {name: number for name, number in others.items() if name != agent.name}
        self._placed = placed
        self._vxlan = vxlan

    def routes(self, family: int) -> Mapping[str, str]:
        found = {}
        for number, host in self._placed.items():
            way = f"tap{number}" if host == self._agent.name else self.gateway(host, family)
            found[address(number, family)] = way
        return found

    def gateway(self, host: str, family: int) -> str:
        if self._vxlan and family == 6:
            return link_local(tunnel_mac(host, 6))
        return underlay(self._others[host], family)

    def forwards(self, family: int) -> Mapping[str, str]:
        if not self._vxlan:
            return {}
        return {tunnel_mac(host, family): underlay(number, family) for host, number in self._others.items()}

    def nexthops(self) -> set[str]:
        return {self.gateway(host, family) for host in self._others for family in (4, 6)}

    def is_there(self) -> bool:
        """Return True if the kernel holds exactly this."""
        agent = self._agent
        return set(agent.nexthops()) == self.nexthops() and all(
            agent.routes(family) == self.routes(family) and agent.forwards(family) == self.forwards(family)
            for family in (4, 6)
        )

    def difference(self) -> str:
        agent = self._agent
        return "\n".join(
            f"{what}: {found} instead of {wanted}"
            for what, found, wanted in (
                ("nexthops", set(agent.nexthops()), self.nexthops()),
                *((f"routes {f}", agent.routes(f), self.routes(f)) for f in (4, 6)),
                *((f"forwards {f}", agent.forwards(f), self.forwards(f)) for f in (4, 6)),
            )
            if found != wanted
        )

    def wait_programmed(self) -> None:
        """Wait until the kernel holds exactly this."""
        try:
            wait(self.is_there, f"{self._agent.name}'s kernel is as wanted")
        except TimeoutError as error:
            said = self._agent.process.output[-2000:]
            raise TimeoutError(f"{error}: {self.difference()}\n{said}") from error


class Monitor:
    """Records every change of routes, nexthops and rules in a namespace."""

    def __init__(self, namespace: Namespace, net: NamespaceNetwork) -> None:
        self._run = namespace.run
        log = net.home / f"{namespace.name}.monitor"
        log.unlink(missing_ok=True)
        self._process = Process(namespace.command("ip", "monitor", "route", "nexthop", "rule"), log=log)
        self._process.start()
        wait(self._hears, "the monitor hears")

    def _hears(self) -> bool:
        for what in ("add", "del"):
            self._run("ip", "route", what, "blackhole", "203.0.113.1/32", "table", "99")
        return "203.0.113.1" in self._process.output

    def changes(self) -> list[str]:
        """Return the recorded changes, without those of the monitor's own test, and without the complaint of `ip` about
        a namespace that another test has deleted."""
        other = ("203.0.113.1", "proto kernel", "Error: Peer netns reference is invalid.")
        return [line for line in self._process.output.splitlines() if not any(word in line for word in other)]

    def stop(self) -> None:
        self._process.kill()


def statuses(stage: Fleet) -> Mapping[str, str]:
    """Return the agents' reports on their endpoints, from the store."""
    return {workload: status for (_, workload), status in reports(stage).items()}


def reports(stage: Fleet) -> Mapping[tuple[str, str], str]:
    """Return the same by host and workload."""
    prefix = ENDPOINT_STATUS.prefix(REGION)
    body = {"key": _text(prefix), "range_end": _text(prefix[:-1] + bytes([prefix[-1] + 1]))}
    found = inside(stage.segment.core.system_name, lambda: _ask("/v3/kv/range", body)).get("kvs", [])
    said = {base64.b64decode(one["key"]): base64.b64decode(one["value"]) for one in found}
    names = {key: ENDPOINT_STATUS.parse(key, REGION) for key in said}
    return {
        (name.host, name.device): json.loads(said[key])["status"]
        for key, name in names.items()
        if isinstance(name, EndpointStatusName)
    }


def _ask(path: str, body: object) -> dict[str, list[dict[str, str]]]:
    connection = http.client.HTTPConnection("10.0.0.254", 2379, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body))
        answer: dict[str, list[dict[str, str]]] = json.loads(connection.getresponse().read())
        return answer
    finally:
        connection.close()


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()
