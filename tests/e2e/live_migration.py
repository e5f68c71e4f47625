"""A live migration of a workload between two hosts: for a while it has a cable to both, as a VM has a tap on both.

Whichever host packets arrive at, they reach the workload; so a lost packet was lost on a route.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.inventory.changes import WantedObject as Edit
from holdfast.inventory.changes import wanted
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.testing.real.hosts import REGION, Fleet, address, gone, workload
from tests.e2e.agent_harness import ExpectedKernel, Monitor, reports, wait
from tests.e2e.inventory_hosts import HOSTS, PLACED


def migrate(stage: Fleet, number: int, source: str, to: str) -> None:
    """Migrate a workload from beginning to end, as an operator does, waiting for each step. In the middle, kill and
    restart the agent of the target host."""
    name, interface = f"w{number}", _other(stage, number)
    begin(stage, number, source, to)
    wait(lambda: reports(stage).get((to, name)) == "down", f"{to} expects {name}")
    plug(stage, number, to, interface)
    wait(lambda: reports(stage).get((to, name)) == "up", f"{name} is up on {to}")
    switch_over(stage, number, interface)
    stage.agents[to].kill()
    stage.agents[to].start()
    stage.change(workload(to, number))
    wait(stage.agents[to].is_at_rest, f"the agent of {to} has compared everything")
    placed: Mapping[int, str] = {**PLACED, number: to}
    for agent in stage.agents.values():
        ExpectedKernel(agent, HOSTS, placed, vxlan=True).wait_programmed()
    wait(lambda: (source, name) not in reports(stage), f"{source} says nothing of {name} any more")
    assert reports(stage)[to, name] == "up"
    stage.agents[source].namespace.run("ip", "link", "del", f"tap{number}")


def begin(stage: Fleet, number: int, source: str, to: str) -> None:
    stage.change(_migration(number, source, to))


def cancel(stage: Fleet, number: int, source: str, to: str) -> None:
    stage.change(gone(_migration(number, source, to)))


def _migration(number: int, source: str, to: str) -> Edit:
    made = Migration.of(REGION, EndpointName(source, "holdfast", f"w{number}", "eth0"), to)
    return wanted(MIGRATION, REGION, made.target, made)


def plug(stage: Fleet, number: int, on: str, interface: str) -> None:
    """Connect the workload to another host."""
    addresses = f"{address(number)}/32", f"{address(number, 6)}/128"
    stage.segment.plug(stage.agents[on].namespace, f"tap{number}", stage.workloads[number], interface, *addresses)


def switch_over(stage: Fleet, number: int, interface: str) -> None:
    """Send the workload's packets through that cable."""
    stage.workloads[number].batch(
        [
            f"route replace default via 169.254.1.1 dev {interface} onlink",
            f"route replace default via fe80::1 dev {interface}",
        ]
    )


def changes(monitor: Monitor, number: int) -> int:
    """Count the changes of routes to that workload."""
    ours = {address(number), address(number, 6)}
    return sum(bool(ours & set(line.split())) for line in monitor.changes())


def _other(stage: Fleet, number: int) -> str:
    """Return an interface name that the workload does not have yet."""
    return "eth1" if " eth0@" in stage.workloads[number].run("ip", "link") else "eth0"
