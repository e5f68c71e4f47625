"""Scenes of hosts on the kernel: an agent is killed under traffic, and its routes are flushed.

Traffic is pings between workloads, one every few milliseconds; the promises are counted in packets.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.agent.dataplane.linux.event_socket import EventSocket
from holdfast.config.sections.linux import LinuxSettings
from holdfast.lab.fleet import kernel_hosts, layout
from holdfast.lab.fleet.agents import ROLE
from holdfast.lab.scenes.stage import Lab, NotInThisLab, Say, Scene, limit_s, promise, send, until
from holdfast.model.base.time import Duration
from holdfast.netlink import nexthops, routes
from holdfast.netlink.netns import inside
from holdfast.netlink.socket import Netlink
from holdfast.runtime.control import Request, ask
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.pinger import Pinger

_VICTIM, _OTHER = 2, 3
_TRAFFIC = 200
"""Ping replies that a scene waits for, so that it has seen some traffic."""
_RESTORED = Duration(seconds=5)
"""The agent hears of a change in the kernel at once; the rest is for a busy machine."""
_CHANGES = (routes.NEW, routes.DELETE, nexthops.NEW, nexthops.DELETE)


@dataclass(frozen=True, slots=True)
class KernelHost:
    """One host of a lab on the kernel, a workload on it, and a workload on another host."""

    lab: Lab
    host: Namespace
    workload: Namespace
    remote: Namespace

    def is_programmed(self) -> bool:
        """Return True if `ip` shows a route to the remote workload."""
        shown = self.host.run("ip", "route", "show", "table", "all", "proto", str(LinuxSettings().protocol))
        return f"{kernel_hosts.workload_address(_OTHER)} " in shown

    async def is_settled(self) -> bool:
        answer = await ask(self.lab.folder / "run" / self.host.name / f"{ROLE}.sock", Request("status"))
        workers = [] if answer.error else answer.result["workers"]
        return any(one["name"] == "peers" and one["state"] == "ok" for one in workers)

    async def settle(self) -> None:
        await until(f"the agent of {self.host.name} to be ok (see holdfast status)", self.is_settled)


def kernel_host(lab: Lab) -> KernelHost:
    names = layout.namespaces(lab.state)
    victim, other = kernel_hosts.name(_VICTIM), kernel_hosts.name(_OTHER)
    if victim not in names:
        raise NotInThisLab("the hosts of this lab are files; this scene needs hosts on the kernel: sudo make lab")
    return KernelHost(lab, *(kernel_hosts.namespace(names, one) for one in (victim, f"{victim}-w", f"{other}-w")))


@contextlib.contextmanager
def route_events(host: Namespace) -> Iterator[EventSocket]:
    """Receive every change to our routes and nexthops in that kernel, whoever makes it."""
    kernel = inside(host.system_name, lambda: Netlink(socket.NETLINK_ROUTE))
    events = inside(host.system_name, lambda: EventSocket(kernel, LinuxSettings().protocol))
    try:
        yield events
    finally:
        events.close()
        kernel.close()


async def agent_kill_under_traffic(lab: Lab, say: Say, seconds: float) -> None:
    """Kill an agent (SIGKILL) while workloads of its host exchange packets. Needs a lab on the kernel."""
    at = kernel_host(lab)
    await until(f"the routes of {at.host.name}", at.is_programmed)
    await at.settle()
    pids = lab.tree(at.host.name, ROLE)
    with (
        route_events(at.host) as events,
        Pinger(at.workload, kernel_hosts.workload_address(_OTHER)) as out,
        Pinger(at.remote, kernel_hosts.workload_address(_VICTIM)) as back,
    ):
        send(pids, signal.SIGKILL)
        say(f"killed the agent of {at.host.name}: {len(pids)} processes, SIGKILL; its workloads ping another host's")
        took = await until("the agent to come back", lambda: lab.is_up(at.host.name, ROLE, not_as=pids))
        await at.settle()
        await until("traffic", lambda: min(out.answered, back.answered) > _TRAFFIC)
        changes = [message for message in events.messages() if message.type in _CHANGES]
    lost, sent = len(out.lost()) + len(back.lost()), out.sent + back.sent
    say(
        f"it is back after {took.total_seconds():.2f} s and has compared everything: {len(changes)} changes in the "
        f"kernel; {lost} of {sent:,} pings were lost"
    )
    promise(not changes, "a restart changes nothing in the kernel")
    promise(not lost, "a restart of the agent loses no packet")


async def kernel_flush(lab: Lab, say: Say, seconds: float) -> None:
    """Flush all nexthops of a host, and every route with them. Needs a lab on the kernel."""
    at = kernel_host(lab)
    await until(f"the routes of {at.host.name}", at.is_programmed)
    await at.settle()
    with Pinger(at.workload, kernel_hosts.workload_address(_OTHER)) as pings:
        await until("traffic", lambda: pings.answered > _TRAFFIC)
        at.host.run("ip", "nexthop", "flush", "protocol", str(LinuxSettings().protocol))
        say(f"flushed all nexthops of {at.host.name}, and with them the routes to every other host")
        took = await until("the routes to be programmed again", at.is_programmed)
        before, since = pings.answered, pings.sent
        await until("more traffic", lambda: pings.answered > before + _TRAFFIC)
    lost, late = pings.lost(), [number for number in pings.lost() if number > since]
    say(
        f"all routes are back after {took.total_seconds():.2f} s; {len(lost)} of {pings.sent:,} pings were lost, "
        f"{len(late)} of them after that"
    )
    promise(took <= _RESTORED, f"flushed routes are programmed again within {limit_s(_RESTORED)}")
    promise(not late, "no packet is lost once the routes are back")


SCENES: Mapping[str, Scene] = {
    "agent-kill-under-traffic": Scene(
        agent_kill_under_traffic,
        promise="a restart of an agent changes nothing in the kernel, and loses no packet",
        limit="0 kernel changes, 0 lost pings",
    ),
    "kernel-flush": Scene(
        kernel_flush,
        promise="routes that somebody flushed come back, and then no packet is lost",
        limit=f"within {limit_s(_RESTORED)}; pings are lost until then, 0 after it",
    ),
}
