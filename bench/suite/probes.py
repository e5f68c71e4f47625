"""Probing: CPU per TCP probe and lateness of probes, of the shipped prober and keeper, compared with HAProxy.

All targets are one listening socket on loopback, reached by a new connection each time at addresses of their own; its
port is none that the kernel chooses for clients, as ports of servers are. Prober and keeper (the worker `vips`, on a
dry-run dataplane) run as a supervisor starts them, with a frontend per hundred backends; CPU is that of both processes,
lateness is the prober's own measurement. HAProxy then does the same checks, if it is installed; the kernel counts them
(together with every other connection on this machine, so at most as many as it was configured to make).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bench.benchmark import Benchmark, Unmeasurable
from holdfast.balancer.probing.worker import PROBER
from holdfast.balancer.worker import VIPS
from holdfast.config.root import Config, dump
from holdfast.config.sections.balancer import BalancerDataplaneSettings, BalancerSettings
from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.config.sections.paths import PathSettings
from holdfast.model.base.time import seconds
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.process import cpu_s
from holdfast.runtime.paths import RolePaths

HERE = "127.0.0.1"
MEASURED = (PROBER, VIPS)
START_WITHIN_S = 60.0
WARM_UP_S = 2.0
HAPROXY = """
global
  nbthread 1
  maxconn {targets}
defaults
  mode tcp
  timeout connect 1s
  timeout check 1s
  timeout server 1s
  timeout client 1s
frontend nobody
  bind unix@{folder}/socket
  default_backend all
backend all
  default-server check inter {interval}ms
"""


class Options(msgspec.Struct, frozen=True):
    targets: Annotated[int, msgspec.Meta(ge=1, description="targets to probe")] = 5_000
    interval: Annotated[float, msgspec.Meta(gt=0, description="seconds from start to start")] = 1.0
    seconds: Annotated[float, msgspec.Meta(gt=0, description="how long to measure")] = 10.0


class Figures(msgspec.Struct, frozen=True):
    probes_per_s: float
    cpu_us_per_probe: float
    cpu_pct: float
    lateness_p50_ms: float
    lateness_p99_ms: float
    haproxy_cpu_us_per_probe: float | None


class Pace(msgspec.Struct, frozen=True):
    """Probes, time and CPU of one process while it was measured."""

    probes: int
    wall_s: float
    cpu_s: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.probes * 1e6


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    with _server() as port:
        ours, lateness = await _ours(options, port)
        theirs = await _haproxy(options, port)
    return Figures(
        probes_per_s=ours.probes / ours.wall_s,
        cpu_us_per_probe=ours.cpu_us,
        cpu_pct=ours.cpu_s / ours.wall_s * 100,
        lateness_p50_ms=lateness["0.5"] * 1e3,
        lateness_p99_ms=lateness["0.99"] * 1e3,
        haproxy_cpu_us_per_probe=None if theirs is None else theirs.cpu_us,
    )


@contextlib.contextmanager
def _server() -> Iterator[int]:
    """Accept and close every connection in a thread; yields the port."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")  # every loopback address, nothing else
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for port in range(20_000, 21_000):
        with contextlib.suppress(OSError):
            listening.bind(("", port))
            break
    else:
        raise Unmeasurable("no port between 20000 and 21000 is free")
    listening.listen(4_096)
    threading.Thread(target=_accept, args=(listening,), daemon=True).start()
    try:
        yield port
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _accept(listening: socket.socket) -> None:
    while True:
        try:
            listening.accept()[0].close()
        except ConnectionError:
            continue
        except OSError:
            return


async def _ours(options: Options, port: int) -> tuple[Pace, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with _workers(Path(folder), _services(options, port)) as (pids, paths):
            await _begun(paths, options.targets)
            await asyncio.sleep(WARM_UP_S + options.interval)
            counts = [await _probes(paths)]
            pace = await _watch(pids, lambda: 0, options.seconds)
            counts.append(await _probes(paths))
            lateness = await _lateness(paths)
    passed, failed = (counts[1].get(code, 0) - counts[0].get(code, 0) for code in ("L4OK", "failed"))
    if not passed or failed:
        raise Unmeasurable(f"{failed:,.0f} probes failed: the figures would be wrong")
    return msgspec.structs.replace(pace, probes=round(passed)), lateness


def _services(options: Options, port: int) -> BalancerSettings:
    check = HealthCheck(type="tcp", interval=seconds(options.interval), timeout=seconds(1))
    addresses = [
        f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}" for number in range(options.targets)
    ]
    backends = {
        f"b{number}": Backend(address=address, port=port, healthcheck=("tcp",))
        for number, address in enumerate(addresses)
    }
    names = list(backends)
    frontends = {
        f"f{first}": Frontend(
            address=f"192.0.2.{1 + place % 250}",
            port=1 + place // 250,
            pools=(Pool(backends={name: PoolMember() for name in names[first : first + 100]}),),
        )
        for place, first in enumerate(range(0, len(names), 100))
    }
    return BalancerSettings(
        dataplane=BalancerDataplaneSettings(kind="dry-run"),
        healthchecks={"tcp": check},
        backends=backends,
        frontends=frontends,
    )


async def _begun(paths: RolePaths, targets: int) -> None:
    """Wait until every target has passed: a busy machine takes long to start a process."""
    try:
        async with asyncio.timeout(START_WITHIN_S):
            while (await _probes(paths)).get("L4OK", 0) < targets:  # noqa: ASYNC110 -- it happens in another process
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise Unmeasurable(f"not every target has passed within {START_WITHIN_S:g} s") from None


async def _probes(paths: RolePaths) -> dict[str, float]:
    """Return the probes since the start: passed ones, and failed ones of any code."""
    found: dict[str, float] = {}
    for sample in (await _metrics(paths)).get("holdfast_probes", ()):
        if sample.name.endswith("_total"):
            code = sample.labels["code"] if sample.labels["code"] == "L4OK" else "failed"
            found[code] = found.get(code, 0) + sample.value
    return found


async def _watch(pids: Sequence[int], count: Callable[[], int], for_s: float) -> Pace:
    """Measure what these processes do in this time, and with how much CPU."""
    before, cpu, wall = count(), sum(map(cpu_s, pids)), time.perf_counter()
    await asyncio.sleep(for_s)
    return Pace(count() - before, time.perf_counter() - wall, sum(map(cpu_s, pids)) - cpu)


def _connections() -> int:
    """Return how many connections this machine has begun to open since boot."""
    names, values = [
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    ]
    return int(values[names.index("ActiveOpens")])


async def _metrics(paths: RolePaths) -> dict[str, Sequence[Sample]]:
    """Return the prober's samples by metric; empty while it does not answer."""
    answer = await ask(paths.socket(PROBER.name), Request("metrics"))
    return {} if answer.error else {one.name: one.samples for one in text_string_to_metric_families(answer.result)}


async def _lateness(paths: RolePaths) -> dict[str, float]:
    """Return the lateness per quantile in seconds, as the prober measured it."""
    samples = (await _metrics(paths)).get("holdfast_probe_lateness_seconds", ())
    if not samples:
        raise Unmeasurable("the prober does not answer")
    return {sample.labels["quantile"]: sample.value for sample in samples}


@contextlib.asynccontextmanager
async def _workers(folder: Path, services: BalancerSettings) -> AsyncIterator[tuple[Sequence[int], RolePaths]]:
    """Run prober and keeper as a supervisor starts them; they end with the block. Yields their process ids."""
    paths = RolePaths("balancer", folder / "run", folder / "state")
    paths.prepare()
    config = Config(paths=PathSettings(state=str(paths.state), runtime=str(paths.runtime)), balancer=services)
    paths.config.write_bytes(dump(config))
    Board.create(paths.board, ["supervisor", *(spec.name for spec in MEASURED)])
    processes = []
    try:
        for spec in MEASURED:
            words = ("balancer", spec.name, spec.entry, str(paths.runtime), str(os.getpid()))
            command = (sys.executable, "-P", "-m", "holdfast.runtime.daemon", *words)
            processes.append(await asyncio.create_subprocess_exec(*command, stdout=sys.stderr, stderr=DEVNULL))
        yield [process.pid for process in processes], paths
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _haproxy(options: Options, port: int) -> Pace | None:
    """Measure the same checks by HAProxy; None if it is not installed."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin")
    if program is None:
        return None
    servers = "".join(f"  server s{number} {HERE}:{port}\n" for number in range(options.targets))
    interval = round(options.interval * 1_000)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        config = Path(folder) / "haproxy.cfg"
        config.write_text(HAPROXY.format(targets=options.targets + 100, interval=interval, folder=folder) + servers)
        process = await asyncio.create_subprocess_exec(program, "-db", "-q", "-f", str(config), stderr=sys.stderr)
        try:
            await asyncio.sleep(WARM_UP_S + options.interval)
            if process.returncode is not None:
                raise Unmeasurable("HAProxy exited at once; see its messages above")
            pace = await _watch([process.pid], _connections, options.seconds)
            configured = round(options.targets * pace.wall_s / options.interval)
            return msgspec.structs.replace(pace, probes=min(pace.probes, configured))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


BENCHMARK = Benchmark(Options, measure)
