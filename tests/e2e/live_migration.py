"""A live migration on the stage: the workload has a cable to both hosts for a while, as a machine has a tap on both.

Whichever way packets come, they reach it; so one that is lost was lost on a route.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.inventory.changes import WantedObject as Edit
from holdfast.inventory.changes import wanted
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.testing.real.hosts import REGION, Fleet, address, gone, workload
from holdfast.testing.real.processes import run
from tests.e2e.agent_harness import Monitor, Wanted, reports, wait
from tests.e2e.inventory_hosts import HOSTS, PLACED


def migrate(stage: Fleet, number: int, source: str, to: str) -> None:
    """From the first word of it to the last, as an operator would do it; waits for what each step waits for. In the
    middle of it the agent of the host that it goes to dies and starts anew."""
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
        Wanted(agent, HOSTS, placed, vxlan=True).come()
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
    """One more cable to the workload, from another host."""
    there, made = stage.agents[on].namespace, stage.workloads[number]
    ends = ["netns", there.system_name, "type", "veth", "peer", "name", interface, "netns", made.system_name]
    run(["ip", "link", "add", f"tap{number}", *ends])
    made.batch(
        [
            f"address add {address(number)}/32 dev {interface}",
            f"address add {address(number, 6)}/128 dev {interface} nodad",
            f"link set {interface} up",
        ]
    )
    there.batch(
        [
            f"address add 169.254.1.1/32 dev tap{number}",
            f"address add fe80::1/64 dev tap{number} nodad",
            f"link set tap{number} up",
        ]
    )


def switch_over(stage: Fleet, number: int, interface: str) -> None:
    """From now on the workload answers by that cable."""
    stage.workloads[number].batch(
        [
            f"route replace default via 169.254.1.1 dev {interface} onlink",
            f"route replace default via fe80::1 dev {interface}",
        ]
    )


def changes(monitor: Monitor, number: int) -> int:
    """How often a route to that workload was changed."""
    ours = {address(number), address(number, 6)}
    return sum(bool(ours & set(line.split())) for line in monitor.heard())


def _other(stage: Fleet, number: int) -> str:
    """A name for a cable that the workload does not have yet."""
    return "eth1" if " eth0@" in stage.workloads[number].run("ip", "link") else "eth0"
