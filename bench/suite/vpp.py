"""VPP: time to program its lb plugin, and to serve again after VPP or the balancer was restarted.

Needs a VPP (26.10 or newer) on PATH, its af_packet plugin, root and network namespaces. *program* is one batch for an
empty VPP: all VIPs and their servers, from the first request until each change has its answer and is remembered; CPU is
that of this process, and *program_vpp_cpu_ms* that of VPP. *program_again_calls* counts the requests that change
something when the same is wanted again.

For the rest, clients reach three servers (L3DSR) through VPP. *flows_back_s* is the time from the moment when a killed
VPP answers on its API again, has its interfaces and has resolved its neighbours, until a new connection to the VIP is
answered; the longest of several restarts counts. *flows_back_from_api_s* counts from the answer of the API alone. Then
the balancer is killed and started again while clients send requests: those that failed, and the requests to VPP that
change something.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from bench.benchmark import Benchmark, Unmeasurable
from bench.gauges import Stopwatch, process_cpu_s
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings, backend
from holdfast.config.sections.vpp import VppSettings
from holdfast.netlink.netns import enter
from holdfast.reconcile import Change, Op, Owned
from holdfast.testing.real.flows import run_clients
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import Unavailable, folder, wait_until
from holdfast.testing.real.vpp import Vpp, running_vpp
from holdfast.testing.real.vpp_site import VIP, VppBalancer, VppSite, vpp_site

PATIENCE_S = 120.0
REQUESTS = 200


class Options(msgspec.Struct, frozen=True):
    vips: Annotated[int, msgspec.Meta(ge=1, le=250, description="VIPs to program")] = 100
    servers: Annotated[int, msgspec.Meta(ge=1, le=40, description="servers of each VIP")] = 20
    restarts: Annotated[int, msgspec.Meta(ge=0, description="restarts of VPP; 0: program only")] = 3


class Programmed(msgspec.Struct, frozen=True):
    """Figures of one batch."""

    program_s: float
    program_cpu_ms: float
    program_vpp_cpu_ms: float
    program_again_calls: int


class Figures(Programmed, frozen=True):
    flows_back_s: float | None = None
    flows_back_from_api_s: float | None = None
    restart_failed_requests: int | None = None
    restart_broken_flows: int | None = None
    restart_calls: int | None = None


def measure(options: Options) -> Figures:
    try:
        with running_vpp() as vpp, folder() as home:
            programmed = asyncio.run(_program(vpp, home, options))
        figures = Figures(**msgspec.structs.asdict(programmed))
        return _restarts(figures, options.restarts) if options.restarts else figures
    except Unavailable as missing:
        raise Unmeasurable(str(missing)) from missing
    except TimeoutError as error:
        raise Unmeasurable(str(error)) from error


async def _program(vpp: Vpp, home: Path, options: Options) -> Programmed:
    from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane  # its client is an extra

    plane = VppDataplane(VppSettings(api_socket=str(vpp.api_socket)), home / "vpp.json")
    await plane.read()  # connected
    changes = _changes(options)
    watch, before = Stopwatch(), process_cpu_s(vpp.process.pid)
    errors = [error for error in await plane.apply(changes) if error is not None]
    took_s, cpu_s, vpp_cpu_s = watch.wall_s, watch.cpu_s, process_cpu_s(vpp.process.pid) - before
    calls = plane.writes
    await plane.apply(changes)
    again = plane.writes - calls
    await plane.disconnect()
    if errors:
        raise Unmeasurable(f"{len(errors)} of {len(changes)} changes failed: {errors[0]}")
    return Programmed(round(took_s, 3), round(cpu_s * 1e3, 1), round(vpp_cpu_s * 1e3, 1), again)


def _changes(options: Options) -> Sequence[Change[VipKey, Value]]:
    settings = VipSettings(table_size=4096, algorithm=0, encapsulation="gre")
    vips = [Vip.of(f"198.18.0.{number}", "tcp", 80) for number in range(1, options.vips + 1)]
    servers = [backend(f"198.18.1.{number}", 80) for number in range(1, options.servers + 1)]
    wanted: dict[VipKey, Value] = {VipKey(vip): settings for vip in vips}
    wanted |= {VipKey(vip, server): BackendEntry(100) for vip in vips for server in servers}
    return [Change(Op.CREATE, key, None, Owned(value, "bench", 1)) for key, value in sorted(wanted.items())]


def _restarts(figures: Figures, times: int) -> Figures:
    with vpp_site() as site, site.balancer() as balancer:
        balancer.wait_weights()
        back = [_flows_back(site, balancer) for _ in range(times)]
        with run_clients(site.client, VIP, 80) as clients:
            before = clients.after(REQUESTS)
            balancer.kill()
            balancer.start()
            balancer.wait_weights()
            counts = clients.after(REQUESTS)
        return msgspec.structs.replace(
            figures,
            flows_back_s=round(max(from_neighbours for from_neighbours, _ in back), 2),
            flows_back_from_api_s=round(max(from_api for _, from_api in back), 2),
            restart_failed_requests=counts.failed - before.failed,
            restart_broken_flows=sum(counts.broken.values()) - sum(before.broken.values()),
            restart_calls=balancer.writes(),
        )


def _flows_back(site: VppSite, balancer: VppBalancer) -> tuple[float, float]:
    """Restart VPP. Returns the seconds to the first flow since its neighbours were resolved, and since it answered."""
    with _answers(site.client) as answered:
        since_api = site.restart_vpp()
        site.resolve_neighbours()
        since = time.monotonic()
        wait_until(partial(answered.has_after, since), "a flow gets an answer", within=PATIENCE_S)
    balancer.wait_weights()
    return answered.first_after(since) - since, answered.first_after(since_api) - since_api


class _Answers:
    """Connects to the VIP from a namespace, again and again, and notes when it was answered."""

    def __init__(self, namespace: Namespace) -> None:
        self.times: list[float] = [0.0]
        self._namespace = namespace
        self._stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name="connecting")

    def has_after(self, moment: float) -> bool:
        return self.times[-1] > moment

    def first_after(self, moment: float) -> float:
        return next(one for one in self.times if one > moment)

    def stop(self) -> None:
        self._stopping.set()
        self.thread.join()

    def _run(self) -> None:
        enter(self._namespace.system_name)
        while not self._stopping.wait(0.01):
            try:
                socket.create_connection((VIP, 80), timeout=0.2).close()
            except OSError:
                continue
            self.times.append(time.monotonic())


@contextmanager
def _answers(namespace: Namespace) -> Iterator[_Answers]:
    made = _Answers(namespace)
    made.thread.start()
    try:
        yield made
    finally:
        made.stop()


BENCHMARK = Benchmark(Options, measure)
