"""The prober inside a whole balancer: its failures take no backend down, and the supervisor replaces it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.runtime.control import Request, ask
from holdfast.testing.real.processes import children, folder, wait_until
from tests.balancer.test_daemon import Daemon


@pytest.fixture
def balancer() -> Iterator[Daemon]:
    """Two backends that are up, and programmed."""
    with folder() as base:
        daemon = Daemon(base)
        try:
            daemon.comes_to(one=100, two=100)
            yield daemon
        finally:
            daemon.stop()


def prober_of(daemon: Daemon) -> int | None:
    """The prober's process."""
    for pid in children(daemon.process.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that was killed may end while we look
            if Path(f"/proc/{pid}/comm").read_text().strip() == "hf:prober":
                return pid
    return None


def probes(daemon: Daemon) -> float:
    """How many probes have ended so far."""
    answer = asyncio.run(ask(daemon.base / "run" / "balancer.prober.sock", Request("metrics")))
    families = text_string_to_metric_families(answer.result or "")
    return sum(
        sample.value for family in families for sample in family.samples if sample.name == "holdfast_probes_total"
    )


def states(daemon: Daemon, backend: str) -> set[str]:
    """All states that a backend has been in."""
    shown = json.loads(daemon.ask("explain", "backend", backend, "-o", "json").stdout)
    return {one["new"] for one in shown["transitions"]}


def test_B21_a_prober_that_is_killed_is_replaced_and_its_successor_sees_what_happens(balancer: Daemon) -> None:
    killed = prober_of(balancer)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: prober_of(balancer) not in (None, killed), "another prober runs")
    balancer.servers.pop(balancer.ports[0]).close()
    balancer.comes_to(one=0, two=100)
    assert "down" not in states(balancer, "two")


def test_B14_B21_a_stopped_prober_is_noticed_and_no_backend_goes_down(balancer: Daemon) -> None:
    frozen = prober_of(balancer)
    assert frozen is not None
    os.kill(frozen, signal.SIGSTOP)
    try:
        wait_until(lambda: "the prober is silent" in balancer.process.output, "the balancer notices")
        assert balancer.weights() == {"one": 100, "two": 100}
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was replaced meanwhile
            os.kill(frozen, signal.SIGCONT)
    wait_until(
        lambda: "the prober delivers results again" in balancer.process.output, "it goes on, or its successor does"
    )
    before = probes(balancer)
    wait_until(lambda: probes(balancer) > before + 20, "there are fresh results of both")
    assert balancer.weights() == {"one": 100, "two": 100}
    assert "down" not in states(balancer, "one") | states(balancer, "two")
