"""The agent's kernel objects: cost to program one, to verify all of them, and the cost with `ip -batch`.

In a network namespace of its own, over VXLAN: each node is a forwarding entry, a neighbour, a nexthop and a route, from
the change that the reconciler hands over to the kernel's acknowledgement. *program_s* is for all of them.
*dump_diff_cpu_ms* is for reading all routes back and comparing them with the wanted ones, the median of five times.
*ip_batch* is the same without nexthop objects, by `ip` and `bridge`, for at most 5,000 nodes: the cost per object there
grows with their number.
"""

from __future__ import annotations

import asyncio
import gc
import operator
import resource
import socket
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated

import msgspec

from bench.benchmark import Benchmark, Unmeasurable
from bench.gauges import Stopwatch
from holdfast.agent.claims import (
    Claim,
    ClaimKey,
    ClaimKind,
    FdbEntry,
    GuardTable,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    RemoteRoute,
    Shape,
    VxlanDevice,
    device,
    forwarding,
    neighbour,
    nexthop,
    route,
)
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.agent.dataplane.linux.devices import Devices
from holdfast.agent.dataplane.linux.guard.guard import Guard
from holdfast.agent.dataplane.linux.snapshot import KernelSnapshot, take, take_routes
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink.netns import inside
from holdfast.netlink.socket import Netlink
from holdfast.reconcile import Change, Op, Owned, diff
from holdfast.runtime.cooperative import at_once
from holdfast.testing.real.netns import Namespace, network
from holdfast.testing.real.processes import Unavailable

BATCH = 1_000
VERIFICATIONS = 5
IP_BATCH_NODES = 5_000
DEVICE = "vxlan0"


class Options(msgspec.Struct, frozen=True):
    nodes: Annotated[int, msgspec.Meta(ge=10, le=60_000, description="other hosts, with one route each")] = 20_000


class Figures(msgspec.Struct, frozen=True):
    program_cpu_us_per_object: float
    program_s: float
    dump_diff_cpu_ms: float
    ip_batch_cpu_us_per_object: float


OWN_MAC = "02:00:00:00:00:fe"


class Node:
    """Another host."""

    def __init__(self, number: int) -> None:
        high, low = number >> 8, number & 0xFF
        self.mac = f"02:00:00:00:{high:02x}:{low:02x}"
        self.underlay = f"172.16.{high}.{low}"
        self.tunnel = f"10.128.{high}.{low}"
        self.prefix = f"10.1.{high}.{low}/32"

    def objects(self) -> Iterator[tuple[ClaimKey, Shape]]:
        yield device(4), VxlanDevice(OWN_MAC)
        yield forwarding(4, self.mac), FdbEntry(self.underlay)
        yield neighbour(self.tunnel), NeighbourEntry(self.mac)
        yield nexthop(self.tunnel), NexthopEntry(Mode.VXLAN)
        yield route(self.prefix), RemoteRoute(self.tunnel)


def measure(options: Options) -> Figures:
    nodes = [Node(number) for number in range(1, options.nodes + 1)]
    try:
        with network() as net:
            programmed = inside(net.namespace("ours").system_name, lambda: asyncio.run(_measure(nodes)))
            by_ip = _ip_batch(net.namespace("ip"), nodes[:IP_BATCH_NODES])
    except Unavailable as missing:
        raise Unmeasurable(str(missing)) from missing
    return Figures(*programmed, by_ip)


async def _measure(nodes: Sequence[Node]) -> tuple[float, float, float]:
    wanted = dict(each for node in nodes for each in node.objects())
    cpu_s, wall_s = await _program(wanted)
    gc.collect()  # garbage of the programming must not count for the verification
    return cpu_s / len(wanted) * 1e6, wall_s, _verify(wanted)


async def _program(wanted: Mapping[ClaimKey, Shape]) -> tuple[float, float]:
    changes = [Change(Op.CREATE, key, None, Owned(Claim(wanted[key]), "bench", 1)) for key in sorted(wanted)]
    dataplane = LinuxDataplane()
    await dataplane.read()
    watch = Stopwatch()
    for start in range(0, len(changes), BATCH):
        await _apply(dataplane, changes[start : start + BATCH])
    used = watch.cpu_s, watch.wall_s
    dataplane.close()
    return used


async def _apply(dataplane: LinuxDataplane, changes: Sequence[ClaimChange]) -> None:
    refused = next(filter(None, await dataplane.apply(changes)), None)
    if refused is not None:
        raise Unmeasurable(f"the kernel refused a change: {refused}")


def _verify(wanted: Mapping[ClaimKey, Shape]) -> float:
    remembered = {key: Owned(shape, "bench", 1) for key, shape in wanted.items() if key.kind is ClaimKind.ROUTE}
    want = [(key, remembered[key]) for key in sorted(remembered)]
    kernel, settings = Netlink(socket.NETLINK_ROUTE), LinuxSettings()
    devices = Devices(kernel, settings, lambda _family: None)
    guard = Guard(GuardTable(settings.vni, settings.port))
    known = at_once(take(kernel, settings, devices, KernelSnapshot(settings.first_nexthop), guard))
    took = []
    for _ in range(VERIFICATIONS):
        watch = Stopwatch()
        known.shapes.clear()
        at_once(take_routes(kernel, settings, devices, 4, known))
        differing = list(diff(want, _present(known.shapes, remembered), operator.eq))
        took.append(watch.cpu_s)
        if differing:
            raise Unmeasurable(f"{len(differing)} routes read back different from what was programmed")
    guard.close()
    kernel.close()
    return median(took) * 1e3


def _present(
    found: Mapping[ClaimKey, Shape], remembered: Mapping[ClaimKey, Owned[Shape]]
) -> list[tuple[ClaimKey, Owned[Shape]]]:
    """Return what the agent compares with: the shape from the kernel, the owner from the journal."""
    present = []
    for key in sorted(found):
        owned = remembered.get(key)
        is_same = owned is not None and owned.value == found[key]
        present.append((key, owned if owned is not None and is_same else Owned(found[key], "", 0)))
    return present


def _ip_batch(there: Namespace, nodes: Sequence[Node]) -> float:
    there.run("ip", "link", "add", DEVICE, "type", "vxlan", "id", "1", "dstport", "4789", "local", "127.0.0.1")
    there.run("ip", "link", "set", DEVICE, "up")
    entries = [f"fdb add {node.mac} dev {DEVICE} dst {node.underlay}" for node in nodes]
    neighbours = [f"neighbour add {node.tunnel} lladdr {node.mac} dev {DEVICE} nud permanent" for node in nodes]
    routes = [f"route add {node.prefix} via {node.tunnel} dev {DEVICE} onlink" for node in nodes]
    before = _children_cpu_s()
    there.batch(entries, "bridge")
    there.batch([*neighbours, *routes])
    return (_children_cpu_s() - before) / (3 * len(nodes)) * 1e6


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


BENCHMARK = Benchmark(Options, measure)
