"""The lab on the kernel: its hosts, their agents and workloads, in real network namespaces.

A whole fleet for two scenes is for `make soak`; `tests/e2e/test_agent.py` has the same promises in `make test`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.lab.fleet import kernel_hosts
from holdfast.lab.scenes.host import kernel_host
from holdfast.lab.scenes.stage import Lab, NotInThisLab
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.netns import network
from holdfast.testing.real.pinger import answers
from holdfast.testing.real.processes import Process, folder, wait_until
from tests.lab.harness import broken, needs_etcd


@pytest.fixture(scope="module")
def lab() -> Iterator[Path]:
    with or_skip(network()), folder() as home:
        process = Process([sys.executable, "-m", "tests.lab.kernel_lab", "hosts", str(home)], log=home / "log")
        process.start()
        try:
            wait_until((home / "run" / "lab.sock").exists, "the lab runs", within=180)
            at = kernel_host(Lab(home))
            wait_until(lambda: answers(at.workload, kernel_hosts.workload_address(3, 2)), "workloads talk", within=180)
            yield home
        finally:
            process.stop(within=60)


@needs_etcd
@pytest.mark.soak
def test_on_the_kernel_a_killed_agent_comes_back_and_no_ping_is_lost(lab: Path) -> None:
    result = broken(lab, "agent-kill-under-traffic")
    assert result.exit_code == 0, result.output
    assert re.search(r"compared everything: 0 changes in the kernel; 0 of [\d,]+ pings were lost", result.output)


@needs_etcd
@pytest.mark.soak
def test_on_the_kernel_flushed_routes_come_back(lab: Path) -> None:
    result = broken(lab, "kernel-flush")
    assert result.exit_code == 0, result.output
    assert re.search(r"all routes are back after [\d.]+ s; \d+ of [\d,]+ pings were lost", result.output)


def test_without_hosts_on_the_kernel_the_scene_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(NotInThisLab, match="this scene needs hosts on the kernel: sudo make lab"):
        kernel_host(Lab(tmp_path))
