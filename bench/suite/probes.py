"""Probing: CPU per TCP probe and lateness of probes, of the shipped prober process, compared with HAProxy.

Every target is the same listening socket on loopback, reached by a new connection each time. The prober gets its
targets and reports over its channel, as from a balancer; CPU is that of its whole process, lateness is its own
measurement. HAProxy then does the same checks, if it is installed; the kernel counts them (together with every other
connection on this machine, so at most as many as it was configured to make).
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
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bench.benchmark import Benchmark, Unmeasurable
from holdfast.balancer.probing.channel import ProberClient
from holdfast.balancer.probing.messages import Assignment, TargetSpec
from holdfast.balancer.probing.worker import PROBER, PROBES_SOCKET
from holdfast.config.root import Config, dump
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.config.sections.paths import PathSettings
from holdfast.model.base.time import seconds
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.process import cpu_s
from holdfast.runtime.paths import RolePaths

HERE = "127.0.0.1"
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
    listening = socket.create_server((HERE, 0), backlog=4_096)
    threading.Thread(target=_accept, args=(listening,), daemon=True).start()
    try:
        yield listening.getsockname()[1]
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
    check = HealthCheck(type="tcp", interval=seconds(options.interval), timeout=seconds(1))
    targets = tuple(TargetSpec(str(number), HERE, port, check) for number in range(options.targets))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with _prober(Path(folder)) as (process, paths):
            line = ProberClient(paths.socket(PROBES_SOCKET))
            line.assign(Assignment(targets))
            found: list[bool] = []
            listening = asyncio.create_task(_listen(line, found))
            await _begun(found)
            await asyncio.sleep(WARM_UP_S + options.interval)
            pace = await _watch(process.pid, lambda: len(found), options.seconds)
            lateness = await _lateness(paths)
            listening.cancel()
    if not pace.probes or not all(found):
        raise Unmeasurable(f"{found.count(False):,} probes failed: the figures would be wrong")
    return pace, lateness


async def _begun(found: list[bool]) -> None:
    """Wait for the first results: a busy machine takes long to start a process."""
    try:
        async with asyncio.timeout(START_WITHIN_S):
            while not found:  # noqa: ASYNC110 -- the event happens in another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise Unmeasurable(f"the prober reported nothing within {START_WITHIN_S:g} s") from None


async def _listen(line: ProberClient, found: list[bool]) -> None:
    async for report in line.reports():
        found += [result.passed for result in report.results]


async def _watch(pid: int, count: Callable[[], int], for_s: float) -> Pace:
    """Measure what that process does in this time, and with how much CPU."""
    before, cpu, wall = count(), cpu_s(pid), time.perf_counter()
    await asyncio.sleep(for_s)
    return Pace(count() - before, time.perf_counter() - wall, cpu_s(pid) - cpu)


def _connections() -> int:
    """Return how many connections this machine has begun to open since boot."""
    names, values = [
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    ]
    return int(values[names.index("ActiveOpens")])


async def _lateness(paths: RolePaths) -> dict[str, float]:
    """Return the lateness per quantile in seconds, as the prober measured it."""
    answer = await ask(paths.socket(PROBER.name), Request("metrics"))
    if answer.error:
        raise Unmeasurable(answer.error)
    families = {family.name: family for family in text_string_to_metric_families(answer.result)}
    samples = families["holdfast_probe_lateness_seconds"].samples
    return {sample.labels["quantile"]: sample.value for sample in samples}


@contextlib.asynccontextmanager
async def _prober(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, RolePaths]]:
    """Run the prober as a supervisor starts it; it ends with the block."""
    paths = RolePaths("balancer", folder / "run", folder / "state")
    paths.prepare()
    config = Config(paths=PathSettings(state=str(paths.state), runtime=str(paths.runtime)))
    paths.config.write_bytes(dump(config))
    Board.create(paths.board, ["supervisor", PROBER.name])
    words = ("balancer", PROBER.name, PROBER.entry, str(paths.runtime), str(os.getpid()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "holdfast.runtime.daemon.worker", *words), stdout=sys.stderr
    )
    try:
        yield process, paths
    finally:
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
            pace = await _watch(process.pid, _connections, options.seconds)
            configured = round(options.targets * pace.wall_s / options.interval)
            return msgspec.structs.replace(pace, probes=min(pace.probes, configured))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


BENCHMARK = Benchmark(Options, measure)
