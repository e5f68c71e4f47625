"""A whole `holdfast balancer` in a network namespace, as an operator sees it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.balancer.dataplane.api import TrackedFlows
from holdfast.cli.doctor import Severity
from holdfast.cli.doctor.balancer import tracking
from holdfast.runtime.control import Request, ask
from holdfast.testing.real.anycast import AnycastSite
from holdfast.testing.real.processes import Process, folder, wait_until
from tests.balancer.dataplane.nftables.harness import V4, Ground

T = TypeVar("T")
HOLDFAST = str(Path(sys.executable).parent / "holdfast")
CONFIG = """\
paths: {{state: {base}/state, runtime: {base}/run}}
# A busy machine is none of what is tried here.
runtime: {{heartbeat-after: 120s, stalled-after: 240s, supervisor-silent-after: 300s}}
balancer:
  startup-min-delay: 100ms
  startup-max-delay: 20s
  healthchecks: {{web: {{type: tcp, interval: 200ms}}}}
  backends:
    web-1: {{address: 10.3.0.1, port: 8080, healthcheck: web}}
    web-2: {{address: 10.3.0.2, port: 8080, healthcheck: web}}
    web-3: {{address: 10.3.0.3, port: 8080, healthcheck: web}}
  frontends:
    www: {{address: 192.0.2.1, port: 80, table-size: 1021, pools: [{{backends: {{web-1: , web-2: , web-3: }}}}]}}
"""
FROM_ETCD = "paths: {{state: {base}/state, runtime: {base}/run}}\nbalancer: {{source: etcd}}\n"
OVERLOADED = "the process hangs, or is overloaded"
FORWARDS = "/proc/sys/net/ipv4/ip_forward"


class Operator:
    """Somebody at the balancer's machine."""

    def __init__(self, ground: Ground, base: Path, process: Process) -> None:
        self._ground = ground
        self._base = base
        self._process = process

    def asks(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = self._ground.namespace.command(HOLDFAST, *words, "--runtime", str(self._base / "run"))
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def is_told(self, *words: str) -> str:
        done = self._patiently(lambda: self.asks(*words), lambda done: OVERLOADED in done.stderr)
        assert done.returncode == 0, f"{done.stderr}\n{self._process.output}"
        return done.stdout

    def doctor(self, config: str = CONFIG, *, inside: bool = True) -> str:
        """Run it in the balancer's namespace, or on the machine itself."""
        said = self._patiently(
            lambda: doctor(self._ground, self._base, config, inside=inside), lambda said: OVERLOADED in said
        )
        assert "not checked" not in said, f"{said}\n{self._process.output}"
        return said

    def metrics(self) -> str:
        said = self._patiently(
            lambda: asyncio.run(ask(self._base / "run" / "balancer.sock", Request("metrics"))).result or "",
            lambda said: "holdfast_conntrack_flows_max{" not in said,
        )
        return str(said)

    def _patiently(self, ask: Callable[[], T], again: Callable[[T], bool]) -> T:
        """Asks again while a busy machine keeps a worker from answering in time; no other excuse counts."""
        deadline = time.monotonic() + 60
        while again(answer := ask()) and time.monotonic() < deadline:
            pass
        return answer


def doctor(ground: Ground, base: Path, config: str, *, inside: bool = True) -> str:
    file = base / "doctor.yaml"
    file.write_text(config.format(base=base))
    words = [HOLDFAST, "doctor", "--config", str(file)]
    command = ground.namespace.command(*words) if inside else words
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def operator(ground: Ground, site: AnycastSite) -> Iterator[Operator]:
    with folder() as base:
        config = base / "holdfast.yaml"
        config.write_text(CONFIG.format(base=base))
        command = ground.namespace.command(HOLDFAST, "balancer", "--config", str(config))
        process = Process(command, log=base / "log")
        process.start()
        try:
            wait_until(lambda: len(ground.read()) == 4, "the VIP is programmed", within=60)
            yield Operator(ground, base, process)
        finally:
            process.stop()


def test_an_operator_asks_where_a_flow_goes_and_what_is_wrong_with_the_machine(
    operator: Operator, ground: Ground
) -> None:
    (flow,) = ground.connect(V4)
    server, source = flow.server(), "{}:{}".format(*flow.source)
    assert f"established with {server} (" in operator.is_told("explain", "flow", source, "192.0.2.1:80")
    said = operator.asks("explain", "flow", source)
    assert (said.returncode, "the VIP is missing" in said.stderr) == (2, True)
    assert operator.is_told("balancer", "traffic").split()[:3] == ["FRONTEND", "BACKEND", "FLOWS"]
    found = operator.doctor()
    assert "ok    dataplane  nftables is available; our table is inet holdfast" in found
    assert "ok    forwarding net.ipv4.ip_forward is 1" in found
    with not_forwarding(ground):
        assert "BAD   forwarding net.ipv4.ip_forward is not 1" in operator.doctor()
        served = operator.doctor(FROM_ETCD)
    assert "BAD   forwarding net.ipv4.ip_forward is not 1" in served
    assert "ipv6" not in served


def test_the_doctor_reports_before_the_first_start(ground: Ground, tmp_path: Path) -> None:
    with not_forwarding(ground):
        from_file, from_etcd = (doctor(ground, tmp_path, config) for config in (CONFIG, FROM_ETCD))
    assert "BAD   forwarding net.ipv4.ip_forward is not 1" in from_file
    assert "note  replies    not checked: no Holdfast daemon is running" in from_file
    assert "note  forwarding net.ipv4.ip_forward is not 1" in from_etcd  # the store may have no frontend of that family
    assert "ok    forwarding net.ipv6.conf.all.forwarding is 1" in from_etcd


def test_the_fill_of_connection_tracking_is_that_of_the_balancers_own_namespace(
    operator: Operator, ground: Ground
) -> None:
    flows = ground.connect(V4, 60)
    found = operator.doctor(inside=False)
    counted = re.search(r"ok    conntrack  ([\d,]+) of ([\d,]+) connections are tracked", found)
    assert counted, found
    assert int(counted[1].replace(",", "")) >= len(flows) == 60
    shown = dict(re.findall(r"^(holdfast_conntrack_flows(?:_max)?){.*} (\S+)$", operator.metrics(), re.MULTILINE))
    assert float(shown["holdfast_conntrack_flows"]) >= 60
    assert float(shown["holdfast_conntrack_flows_max"]) == int(counted[2].replace(",", ""))


@pytest.mark.parametrize(("flows", "severity"), [(0, Severity.GOOD), (80, Severity.GOOD), (81, Severity.WRONG)])
def test_a_nearly_full_table_of_connections_is_wrong(flows: int, severity: Severity) -> None:
    (found,) = tracking(TrackedFlows(flows, 100))
    assert found.severity is severity
    assert f"{flows} of 100 connections are tracked" in found.sentence


@contextlib.contextmanager
def not_forwarding(ground: Ground) -> Iterator[None]:
    ground.namespace.run("sh", "-c", f"echo 0 >{FORWARDS}")
    try:
        yield
    finally:
        ground.namespace.run("sh", "-c", f"echo 1 >{FORWARDS}")
