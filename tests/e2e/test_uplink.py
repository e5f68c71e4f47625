"""An uplink that is away for a minute, and the agent's way to the store with it: all routes are back within a second.

The second is counted from the kernel event that makes the routes possible, as `ip monitor` dates both. Time in which
the machine ran other processes instead of the agent does not count.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.hosts import REGION, AgentProcess, Fleet, address, underlay
from holdfast.testing.real.netns import network
from holdfast.testing.real.pinger import answers
from holdfast.testing.real.processes import Process
from tests.e2e.agent_harness import fleet, wait

MANY = 500
AWAY_S = 60.0
WITHIN_S = 1.0


@pytest.fixture(scope="module")
def stage() -> Iterator[Fleet]:
    """Two hosts that send directly, and many workloads on the other one."""
    with or_skip(network()) as net, fleet(net, "never", count=2) as made:
        made.change(*(elsewhere(number) for number in range(MANY)))
        yield made


def elsewhere(number: int) -> WantedObject:
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=f"many-{number}",
        node="h2",
        endpoint="eth0",
        interface_name=f"many{number}",
        ip_networks=(f"10.29.{number >> 8}.{number & 255}/32", f"fd00:29::{number:x}/128"),
    )
    return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec))


def is_whole(agent: AgentProcess) -> bool:
    """Return True if every route through the uplink is there."""
    return all(list(agent.routes(family).values()).count(underlay(2, family)) == MANY + 1 for family in (4, 6))


def loses_its_carrier(stage: Fleet) -> Callable[[], None]:
    stage.segment.core.batch(["link set to-h1 down"])
    return lambda: stage.segment.core.batch(["link set to-h1 up"])


def is_switched_off(stage: Fleet) -> Callable[[], None]:
    """The kernel deletes the IPv6 address with it, which whoever configures the device adds again."""
    host = stage.segment.hosts["h1"]
    host.batch(["link set eth0 down"])
    return lambda: host.batch(["link set eth0 up", f"address add {underlay(1, 6)}/64 dev eth0 nodad"])


class DatedMonitor:
    """Records changes of devices, addresses, nexthops and routes of a host, with their times."""

    def __init__(self, stage: Fleet, name: str) -> None:
        place = stage.segment.hosts[name]
        log = stage.segment.net.home / f"{name}.dated"
        log.unlink(missing_ok=True)
        self._process = Process(
            place.command("ip", "-tshort", "monitor", "link", "address", "nexthop", "route"), log=log
        )
        self._process.start()
        wait(lambda: self._hears(place.run), "the monitor hears")

    def _hears(self, run: Callable[..., str]) -> bool:
        for what in ("add", "del"):
            run("ip", "route", what, "blackhole", "203.0.113.1/32", "table", "99")
        return "203.0.113.1" in self._process.output

    def times(self, pattern: str) -> Sequence[float]:
        """Return when lines with this pattern arrived."""
        lines = re.findall(r"^\[([^\]]+)\] *(.*)$", self._process.output, re.MULTILINE)
        return [datetime.fromisoformat(at).timestamp() for at, line in lines if re.search(pattern, line)]

    def stop(self) -> None:
        self._process.kill()


def waited_s(agent: AgentProcess) -> float:
    """Return for how long the worker that programs the kernel was ready to run and did not."""
    pid = agent.worker("peers")["pid"]
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


@pytest.mark.soak
@pytest.mark.parametrize("fails", [loses_its_carrier, is_switched_off])
def test_all_routes_are_back_within_a_second_after_a_minute_without_the_uplink(
    stage: Fleet, fails: Callable[[Fleet], Callable[[], None]]
) -> None:
    agent = stage.agents["h1"]
    wait(lambda: is_whole(agent), "all routes are programmed")
    wait(agent.is_at_rest, "the agent has compared everything")
    monitor = DatedMonitor(stage, "h1")
    try:
        restore = fails(stage)
        try:
            wait(lambda: not agent.nexthops(), "the kernel has dropped the nexthops")
            time.sleep(AWAY_S)
            before = waited_s(agent)
        finally:
            restore()
        wait(lambda: is_whole(agent), "all routes are back")
        waited = waited_s(agent) - before
    finally:
        monitor.stop()
    possible = max(monitor.times(r"\beth0@.*,UP,LOWER_UP.* state UP|inet6 fd00::1/64"))
    back = max(monitor.times(r"\bproto 175\b"))
    assert back - possible - waited < WITHIN_S
    assert all(answers(stage.workloads[1], address(2, family)) for family in (4, 6))
