"""Load balancing on the kernel: CPU per request through a VIP, beside the same request without one, and HAProxy's.

wrk opens a new connection for each request, from its own network namespace through a balancer's to nginx in a third.
Counted is all CPU of wrk, nginx and whoever balances; what the kernel does for a packet is done in their name. The
three take turns in short rounds, and of each the cheapest counts, as what else the machine does can only add to it:

- direct: to the three servers' own addresses, a thread of wrk each, through a namespace that only routes;
- ours: the VIP, with the balancer running and probing once a second;
- HAProxy: in TCP mode, one thread, checking once a second, in the namespace that only routes.

Then the balancer is killed and started again, twice, under the same load: requests that failed, and changes to the
kernel's tables by the kernel's own count.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from bench.benchmark import Benchmark, Unmeasurable
from holdfast.testing.anycast import SERVERS, address
from holdfast.testing.balancers import VIP, Balancer, Stage
from holdfast.testing.netns import Namespace, network
from holdfast.testing.processes import Process, Unavailable, as_user, children, tool, wait_until

ROUNDS = 5
CONNECTIONS = 32
RESTARTS = 2
PATIENCE_S = 60.0
_HAPROXY_AT = ("10.1.2.1", 8080)
_HAPROXY = """
global
  nbthread 1
  maxconn 4000
defaults
  mode tcp
  timeout connect 5s
  timeout server 10s
  timeout client 10s
listen all
  bind {host}:{port}
  default-server check inter 1s
{servers}
"""
_SPREAD = """
local servers, number = {{ {hosts} }}, 0
function setup(thread)
  number = number + 1
  thread.addr = wrk.lookup(servers[number], "80")[1]
end
"""
_PORTS = "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range"


class Options(msgspec.Struct, frozen=True):
    seconds: Annotated[float, msgspec.Meta(ge=5, description="how long each of the three is measured")] = 10.0


class Figures(msgspec.Struct, frozen=True):
    direct_cpu_us_per_req: float
    lb_cpu_us_per_req: float
    ratio: float
    haproxy_ratio: float | None
    restart_failed_requests: int
    restart_dataplane_writes: int


class Load(msgspec.Struct, frozen=True):
    """What one run of wrk came to."""

    requests: int
    failed: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked, through which balancer's namespace; and who balances, if anybody."""

    url: str
    through: int
    balancing: Sequence[int] = ()
    script: Path | None = None


@dataclass(frozen=True, slots=True)
class Wrk:
    """wrk in the client's namespace, aimed at one place."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, namespace: Namespace, target: Target, seconds: float) -> Wrk:
        words = [tool("wrk"), f"-t{len(SERVERS)}", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-H", "Connection: close"]
        words += [] if target.script is None else ["-s", str(target.script)]
        words.append(target.url)
        guarded = [*as_user(None, "--pdeathsig", "KILL"), *namespace.command(*words)]
        return cls(subprocess.Popen(guarded, stdout=subprocess.PIPE, text=True))

    def result(self) -> Load:
        """Waits for its end."""
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.process.stdout.close()
        found = re.search(r"(\d+) requests in", said)
        if self.process.returncode or found is None:
            raise Unmeasurable(f"wrk ended with status {self.process.returncode}: {said.strip() or 'it said nothing'}")
        errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
        other = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
        failed = sum(map(int, errors.groups())) if errors else 0
        return Load(int(found[1]), failed + (int(other[1]) if other else 0), usage.ru_utime + usage.ru_stime)


def measure(options: Options) -> Figures:
    try:
        with network() as net, contextlib.ExitStack() as held:
            tool("wrk")
            stage = Stage(net, balancers=2, table_size=65537, warm_up="1s", sync="30s", probe="1s")
            held.callback(stage.end)
            stage.balancers[1].process.stop(signal.SIGKILL)
            for one in (stage.client, *stage.site.balancers):
                one.run("sh", "-c", _PORTS)
            stage.balancer.comes_to(dict.fromkeys(SERVERS, 100))
            haproxy = held.enter_context(_haproxy(stage.balancers[1].namespace, net.home))
            return _figures(stage, haproxy, net.home, options.seconds / ROUNDS)
    except Unavailable as missing:
        raise Unmeasurable(str(missing)) from missing


def _figures(stage: Stage, haproxy: Process | None, home: Path, seconds: float) -> Figures:
    ours = Target(f"http://{VIP[4]}/", 1, _tree(stage.balancer))
    targets = {"direct": Target(f"http://{address(SERVERS[0])}/", 2, script=_spread(home)), "ours": ours}
    if haproxy is not None:
        targets["haproxy"] = Target(f"http://{_HAPROXY_AT[0]}:{_HAPROXY_AT[1]}/", 2, [haproxy.pid])
    costs: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(ROUNDS):
        for name, target in targets.items():
            costs[name].append(_cost(stage, target, seconds))
    stage.site.lead_through(1)
    failed, writes = _restarted(stage, ours)
    direct = min(costs["direct"])
    return Figures(
        direct_cpu_us_per_req=round(direct, 1),
        lb_cpu_us_per_req=round(min(costs["ours"]), 1),
        ratio=round(min(costs["ours"]) / direct, 3),
        haproxy_ratio=round(min(costs["haproxy"]) / direct, 3) if haproxy is not None else None,
        restart_failed_requests=failed,
        restart_dataplane_writes=writes,
    )


def _spread(home: Path) -> Path:
    """A script for wrk: each of its threads uses another server."""
    script = home / "spread.lua"
    script.write_text(_SPREAD.format(hosts=", ".join(f'"{address(name)}"' for name in SERVERS)))
    return script


def _cost(stage: Stage, target: Target, seconds: float) -> float:
    """Microseconds of CPU per request, of all who take part."""
    stage.site.lead_through(target.through)
    pids = [*(one.process.pid for one in stage.servers.values()), *target.balancing]
    before = sum(map(_cpu_s, pids))
    load = Wrk.start(stage.client, target, seconds).result()
    if load.failed or not load.requests:
        raise Unmeasurable(f"{load.failed:,} of {load.requests:,} requests to {target.url} failed")
    return (sum(map(_cpu_s, pids)) - before + load.cpu_s) / load.requests * 1e6


def _restarted(stage: Stage, target: Target) -> tuple[int, int]:
    """Requests that failed, and writes that were made, while the balancer was killed and came back."""
    balancer = stage.balancer
    _until(balancer.is_released, "the balancer has come to rest")
    generation = balancer.generation()
    load = Wrk.start(stage.client, target, PATIENCE_S)
    for _ in range(RESTARTS):
        balancer.kill()
        balancer.start()
        _until(balancer.is_released, "the balancer has come to rest again")
    load.process.send_signal(signal.SIGINT)
    return load.result().failed, balancer.generation() - generation


def _until(condition: Callable[[], bool], what: str) -> None:
    try:
        wait_until(condition, what, within=PATIENCE_S)
    except TimeoutError as error:
        raise Unmeasurable(str(error)) from error


def _tree(balancer: Balancer) -> list[int]:
    return [balancer.process.pid, *children(balancer.process.pid)]


def _cpu_s(pid: int) -> float:
    """CPU of a process so far, of all its threads, as exactly as the scheduler knows it."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


@contextlib.contextmanager
def _haproxy(namespace: Namespace, home: Path) -> Iterator[Process | None]:
    """HAProxy before the same servers; None where it is not installed."""
    try:
        program = tool("haproxy")
    except Unavailable:
        yield None
        return
    host, port = _HAPROXY_AT
    servers = "".join(f"  server {name} {address(name)}:80\n" for name in SERVERS)
    file = home / "haproxy.cfg"
    file.write_text(_HAPROXY.format(host=host, port=port, servers=servers))
    process = Process(namespace.command(program, "-db", "-q", "-f", str(file)), log=home / "haproxy.log")
    process.start()
    try:
        _until(lambda: not process.alive or bool(namespace.run("ss", "-Hltn", f"sport = :{port}")), "HAProxy listens")
        if not process.alive:
            raise Unmeasurable(f"HAProxy ended at once: {process.output.strip()}")
        yield process
    finally:
        process.stop(signal.SIGKILL)


BENCHMARK = Benchmark(Options, measure)
