"""The benchmark of the balancer's path: its keys, and how it reads what wrk says."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from bench import wrk
from bench.benchmark import Unmeasurable
from bench.suite import lb
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.processes import running, wait_until

GOOD = """\
Running 3s test @ http://192.0.2.80/
  3 threads and 32 connections
  1234 requests in 3.00s, 200.00KB read
Requests/sec:    411.00
"""
ERRORS = """\
  Socket errors: connect 1, read 2, write 3, timeout 4
  Non-2xx or 3xx responses: 5
"""
BAD = GOOD.replace("Requests/sec", f"{ERRORS}Requests/sec")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespaces: NamespaceNetwork) -> Namespace:
    """A namespace in which `wrk` prints the file `said` of the test's folder."""
    program = tmp_path / "wrk"
    program.write_text(f"#!/bin/sh\ncat {shlex.quote(str(tmp_path / 'said'))}\n")
    program.chmod(0o755)
    monkeypatch.setattr(wrk, "tool", lambda _name: str(program))
    return namespaces.namespace("client")


@pytest.mark.parametrize(("said", "failed"), [(GOOD, 0), (BAD, 15)])
def test_what_wrk_counts_as_failed_is_failed(tmp_path: Path, client: Namespace, said: str, failed: int) -> None:
    (tmp_path / "said").write_text(said)
    load = wrk.Wrk.start(client, "http://192.0.2.80/", 3).result()
    assert (load.requests, load.failed) == (1234, failed)


def test_a_wrk_without_a_result_is_no_measurement(tmp_path: Path, client: Namespace) -> None:
    (tmp_path / "said").write_text("unable to connect\n")
    with pytest.raises(Unmeasurable, match="wrk ended with status 0: unable to connect"):
        wrk.Wrk.start(client, "http://192.0.2.80/", 3).result()


def test_the_result_of_wrk_is_available_also_if_it_ended_before_it_was_stopped(
    tmp_path: Path, client: Namespace
) -> None:
    (tmp_path / "said").write_text(GOOD)
    load = wrk.Wrk.start(client, "http://192.0.2.80/", 3)
    wait_until(lambda: not running(load.process.pid), "wrk is over")
    load.stop()
    assert load.result().requests == 1234


@pytest.mark.soak
def test_the_benchmark_yields_its_keys_and_a_restart_costs_nothing() -> None:
    try:
        figures = msgspec.structs.asdict(lb.measure(lb.Options(seconds=5)))
    except Unmeasurable as missing:
        pytest.skip(str(missing))
    assert list(figures) == [
        "direct_cpu_us_per_req",
        "spread_cpu_us_per_req",
        "lb_cpu_us_per_req",
        "lb_processes_cpu_ms_per_s",
        "ratio",
        "ratio_to_spread",
        "bare_dnat_ratio",
        "bare_dnat_ratio_to_spread",
        "haproxy_ratio",
        "haproxy_ratio_to_spread",
        "restart_failed_requests",
        "restart_dataplane_writes",
    ]
    assert (figures["restart_failed_requests"], figures["restart_dataplane_writes"]) == (0, 0)
    assert figures["direct_cpu_us_per_req"] > 0
