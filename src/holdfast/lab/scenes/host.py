"""Scenes of hosts on the kernel: an agent dies under traffic, and somebody flushes what an agent has programmed.

Traffic is pings between workloads, one every few milliseconds; what is promised is counted in packets.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.agent.dataplane.linux.event_socket import EventSocket
from holdfast.config.sections.linux import LinuxSettings
from holdfast.lab.fleet import kernel_hosts as hosts
from holdfast.lab.fleet import netns
from holdfast.lab.fleet.agents import ROLE
from holdfast.lab.scenes.stage import Broken, Lab, Say, Scene, promise, send, until
from holdfast.netlink import nexthops, routes
from holdfast.netlink.netns import inside
from holdfast.netlink.socket import Netlink
from holdfast.runtime.control import Request, ask
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.pinger import Pinger

_VICTIM, _OTHER = 2, 3
_TRAFFIC = 200
"""Answers that a scene waits for, so that it has seen some traffic."""
_CHANGES = (routes.NEW, routes.DELETE, nexthops.NEW, nexthops.DELETE)


@dataclass(frozen=True, slots=True)
class KernelHost:
    """One host of a lab on the kernel, and the workloads of two."""

    lab: Lab
    host: Namespace
    here: Namespace
    there: Namespace

    def is_programmed(self) -> bool:
        """Whether the host has a route to the other one's workload, by `ip`'s word."""
        shown = self.host.run("ip", "route", "show", "table", "all", "proto", str(LinuxSettings().protocol))
        return f"{hosts.workload_address(_OTHER)} " in shown

    async def is_at_rest(self) -> bool:
        path = self.lab.folder / "run" / self.host.name / f"{ROLE}.sock"
        said = await ask(path, Request("status"))
        workers = [] if said.error else said.result["workers"]
        return any(one["name"] == "peers" and one["state"] == "ok" for one in workers)


def place(lab: Lab) -> KernelHost:
    known = netns.namespaces(lab.folder / "state")
    victim, other = hosts.name(_VICTIM), hosts.name(_OTHER)
    if victim not in known:
        raise Broken("this lab's hosts are files: the scene needs one on the kernel (sudo make lab)")
    return KernelHost(lab, *(hosts.namespace(known, one) for one in (victim, f"{victim}-w", f"{other}-w")))


@contextlib.contextmanager
def listening(host: Namespace) -> Iterator[EventSocket]:
    """Hears of every change to routes and nexthops of ours in that kernel, whoever makes it."""
    kernel = inside(host.system_name, lambda: Netlink(socket.NETLINK_ROUTE))
    ear = inside(host.system_name, lambda: EventSocket(kernel, LinuxSettings().protocol))
    try:
        yield ear
    finally:
        ear.close()
        kernel.close()


async def _rest(at: KernelHost) -> None:
    for _ in range(600):
        if await at.is_at_rest():
            return
        await asyncio.sleep(0.1)
    raise Broken(f"the agent of {at.host.name} has not come to rest within 60 s (holdfast status)")


async def agent_traffic(lab: Lab, say: Say, seconds: float) -> None:
    """SIGKILL for a host's agent while its workloads talk to another host's."""
    at = place(lab)
    await until(f"{at.host.name} having its routes", at.is_programmed)
    await _rest(at)
    pids = lab.tree(at.host.name, ROLE)
    with (
        listening(at.host) as ear,
        Pinger(at.here, hosts.workload_address(_OTHER)) as out,
        Pinger(at.there, hosts.workload_address(_VICTIM)) as back,
    ):
        send(pids, signal.SIGKILL)
        say(f"killed the agent of {at.host.name}: {len(pids)} processes, SIGKILL; its workloads talk to another host's")
        took = await until("the agent coming back", lambda: lab.is_up(at.host.name, ROLE, not_as=pids))
        await _rest(at)
        await until("traffic", lambda: min(out.answered, back.answered) > _TRAFFIC)
        changes = [message for message in ear.messages() if message.type in _CHANGES]
    lost, sent = len(out.lost()) + len(back.lost()), out.sent + back.sent
    say(
        f"it is back after {took.total_seconds():.2f} s and has compared everything: {len(changes)} changes in the "
        f"kernel; {lost} of {sent:,} pings were lost"
    )
    promise(not changes, "a restart changes nothing in the kernel")
    promise(not lost, "a restart of the agent loses no packet")


async def kernel_flush(lab: Lab, say: Say, seconds: float) -> None:
    """Somebody flushes all nexthops of a host, and every route with them."""
    at = place(lab)
    await until(f"{at.host.name} having its routes", at.is_programmed)
    await _rest(at)
    with Pinger(at.here, hosts.workload_address(_OTHER)) as pings:
        await until("traffic", lambda: pings.answered > _TRAFFIC)
        at.host.run("ip", "nexthop", "flush", "protocol", str(LinuxSettings().protocol))
        say(f"flushed all nexthops of {at.host.name}, and with them the routes to every other host")
        took = await until("the routes being back", at.is_programmed)
        before = pings.answered
        await until("traffic going on", lambda: pings.answered > before + _TRAFFIC)
    say(
        f"all routes are back after {took.total_seconds():.2f} s; {len(pings.lost())} of {pings.sent:,} pings were lost"
    )


SCENES: Mapping[str, Scene] = {"agent-traffic": agent_traffic, "kernel-flush": kernel_flush}
