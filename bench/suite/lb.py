"""Load balancing on the kernel: CPU per request through a VIP, compared with no VIP and with HAProxy.

wrk opens a new connection for each request, from its own network namespace through a balancer's to nginx in a third.
All CPU of wrk, nginx and the balancing processes counts; the kernel's work for a packet is accounted to them. Every
variant goes through one such hop. They take turns in short rounds, and the cheapest round of each counts, because
other load on the machine can only add to it:

- direct: to the three servers' own addresses, a thread of wrk each, through a namespace that only routes;
- spread: to an address that all three servers have, connections spread over them by equal routes of that namespace.
  As with every balancer, each thread of wrk then talks to each server: neither side finds as many requests waiting at
  once as in `direct`, and that costs both more, before anything is translated;
- bare dnat: the kernel's own cost of translation: one rule, hashing over three addresses, in a table of its own;
- ours: the VIP, with the balancer running and probing once a second;
- HAProxy: in TCP mode, one thread, checking once a second, in the namespace that only routes.

Ratios are to `direct`, or to `spread` where the name says so. CPU of the balancer's processes is included in `ours` and
also shown separately: it does not depend on the number of requests. Then the balancer is killed and restarted twice
under the same load, counting failed requests and, with the kernel's counter, changes to the kernel's tables.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from bench.benchmark import Benchmark, Unmeasurable
from bench.gauges import process_cpu_s
from bench.wrk import Wrk
from holdfast.testing.real.anycast import SERVERS, address
from holdfast.testing.real.balancers import VIP, BalancedSite, BalancerProcess
from holdfast.testing.real.netns import Namespace, network
from holdfast.testing.real.processes import Process, Unavailable, children, tool, wait_until

ROUNDS = 5
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
_PINNED = """
local servers, number = {{ {hosts} }}, 0
function setup(thread)
  number = number + 1
  thread.addr = wrk.lookup(servers[number], "80")[1]
end
"""
_SHARED = "192.0.2.81"
_BARE = """
table ip bare {{
  chain prerouting {{
    type nat hook prerouting priority -100
    ip daddr {vip} tcp dport 80 dnat to jhash ip saddr . tcp sport mod {count} map {{ {servers} }}
  }}
}}
"""
_PORTS = "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range"


class Options(msgspec.Struct, frozen=True):
    seconds: Annotated[float, msgspec.Meta(ge=5, description="seconds to measure each variant")] = 10.0


class Figures(msgspec.Struct, frozen=True):
    direct_cpu_us_per_req: float
    spread_cpu_us_per_req: float
    lb_cpu_us_per_req: float
    lb_processes_cpu_ms_per_s: float
    ratio: float
    ratio_to_spread: float
    bare_dnat_ratio: float
    bare_dnat_ratio_to_spread: float
    haproxy_ratio: float | None
    haproxy_ratio_to_spread: float | None
    restart_failed_requests: int
    restart_dataplane_writes: int


@dataclass(frozen=True, slots=True)
class Target:
    """URL to request, the balancer namespace to go through, and the balancing processes."""

    url: str
    through: int
    balancing: Sequence[int] = ()
    script: Path | None = None


def measure(options: Options) -> Figures:
    try:
        with network() as net, contextlib.ExitStack() as held:
            tool("wrk")
            stage = BalancedSite(net, balancers=1, routers=2, table_size=65537, warm_up="1s", sync="30s", probe="1s")
            held.callback(stage.end)
            for one in (stage.client, *stage.site.balancers):
                one.run("sh", "-c", _PORTS)
            _, router, bare = stage.site.balancers
            stage.site.spread(2, _SHARED)
            _translate(bare, net.home)
            stage.balancer.wait_weights(dict.fromkeys(SERVERS, 100))
            haproxy = held.enter_context(_haproxy(router, net.home))
            return _figures(stage, _targets(stage, haproxy, net.home), options.seconds / ROUNDS)
    except Unavailable as missing:
        raise Unmeasurable(str(missing)) from missing


def _targets(stage: BalancedSite, haproxy: Process | None, home: Path) -> dict[str, Target]:
    targets = {
        "direct": Target(f"http://{address(SERVERS[0])}/", 2, script=_pinned(home)),
        "spread": Target(f"http://{_SHARED}/", 2),
        "bare": Target(f"http://{VIP[4]}/", 3),
        "ours": Target(f"http://{VIP[4]}/", 1, _tree(stage.balancer)),
    }
    if haproxy is not None:
        targets["haproxy"] = Target(f"http://{_HAPROXY_AT[0]}:{_HAPROXY_AT[1]}/", 2, [haproxy.pid])
    return targets


def _figures(stage: BalancedSite, targets: Mapping[str, Target], seconds: float) -> Figures:
    costs: dict[str, list[float]] = {name: [] for name in targets}
    own = 0.0
    for _ in range(ROUNDS):
        for name, target in targets.items():
            before = sum(map(process_cpu_s, targets["ours"].balancing))
            costs[name].append(_cost(stage, target, seconds))
            own += sum(map(process_cpu_s, targets["ours"].balancing)) - before
    stage.site.lead_through(1)
    failed, writes = _restarted(stage, targets["ours"])
    least = {name: min(found) for name, found in costs.items()}

    def ratio(name: str, to: str = "direct") -> float:
        return round(least[name] / least[to], 3)

    return Figures(
        direct_cpu_us_per_req=round(least["direct"], 1),
        spread_cpu_us_per_req=round(least["spread"], 1),
        lb_cpu_us_per_req=round(least["ours"], 1),
        lb_processes_cpu_ms_per_s=round(own / (ROUNDS * len(targets) * seconds) * 1e3, 1),
        ratio=ratio("ours"),
        ratio_to_spread=ratio("ours", "spread"),
        bare_dnat_ratio=ratio("bare"),
        bare_dnat_ratio_to_spread=ratio("bare", "spread"),
        haproxy_ratio=ratio("haproxy") if "haproxy" in least else None,
        haproxy_ratio_to_spread=ratio("haproxy", "spread") if "haproxy" in least else None,
        restart_failed_requests=failed,
        restart_dataplane_writes=writes,
    )


def _translate(namespace: Namespace, home: Path) -> None:
    """Install one rule: the least that a balancer on this kernel's connection tracking can cost."""
    servers = ", ".join(f"{number} : {address(name)}" for number, name in enumerate(SERVERS))
    file = home / "bare.nft"
    file.write_text(_BARE.format(vip=VIP[4], count=len(SERVERS), servers=servers))
    namespace.run("nft", "-f", str(file))


def _pinned(home: Path) -> Path:
    """Write a script for wrk that gives each of its threads another server."""
    script = home / "pinned.lua"
    script.write_text(_PINNED.format(hosts=", ".join(f'"{address(name)}"' for name in SERVERS)))
    return script


def _cost(stage: BalancedSite, target: Target, seconds: float) -> float:
    """Return microseconds of CPU per request, of all processes involved."""
    stage.site.lead_through(target.through)
    pids = [*(one.process.pid for one in stage.servers.values()), *target.balancing]
    before = sum(map(process_cpu_s, pids))
    load = Wrk.start(stage.client, target.url, seconds, target.script).result()
    if load.failed or not load.requests:
        raise Unmeasurable(f"{load.failed:,} of {load.requests:,} requests to {target.url} failed")
    return (sum(map(process_cpu_s, pids)) - before + load.cpu_s) / load.requests * 1e6


def _restarted(stage: BalancedSite, target: Target) -> tuple[int, int]:
    """Kill and restart the balancer under load; return failed requests and dataplane writes."""
    balancer = stage.balancer
    _until(balancer.is_released, "the balancer is settled")
    generation = balancer.generation()
    load = Wrk.start(stage.client, target.url, (RESTARTS + 1) * PATIENCE_S)
    for _ in range(RESTARTS):
        balancer.kill()
        balancer.start()
        _until(balancer.is_released, "the balancer is settled again")
    load.stop()
    return load.result().failed, balancer.generation() - generation


def _until(condition: Callable[[], bool], what: str) -> None:
    try:
        wait_until(condition, what, within=PATIENCE_S)
    except TimeoutError as error:
        raise Unmeasurable(str(error)) from error


def _tree(balancer: BalancerProcess) -> list[int]:
    return [balancer.process.pid, *children(balancer.process.pid)]


@contextlib.contextmanager
def _haproxy(namespace: Namespace, home: Path) -> Iterator[Process | None]:
    """Run HAProxy for the same servers; yields None if it is not installed."""
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
            raise Unmeasurable(f"HAProxy exited at once: {process.output.strip()}")
        yield process
    finally:
        process.stop(signal.SIGKILL)


BENCHMARK = Benchmark(Options, measure)
