"""Scenes of the balancer on the kernel, in real network namespaces."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.lab import command as commands
from holdfast.lab.fleet import layout, netns
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.netns import network
from holdfast.testing.real.processes import Process, folder, run, wait_until
from tests.lab.harness import broken, needs_etcd


@pytest.fixture(scope="module")
def site() -> Iterator[Path]:
    with or_skip(network()), folder() as home:
        process = Process([sys.executable, "-m", "tests.lab.kernel_lab", "site", str(home)], log=home / "log")
        process.start()
        try:
            wait_until((home / "run" / "lab.sock").exists, f"the lab runs: {process.output}", within=60)
            yield home
        finally:
            process.stop(within=60)
        assert not any(name in run(["ip", "netns", "list"]) for name in ended(home)), "a lab leaves no namespace behind"


def ended(home: Path) -> list[str]:
    """The names that a lab which has ended still knows."""
    return list(layout.namespaces(home / "state").values())


def test_on_the_kernel_a_killed_balancer_comes_back_without_a_write(site: Path) -> None:
    result = broken(site, "balancer-restart")
    assert result.exit_code == 0, result.output
    assert "killed the balancer: 4 processes, SIGKILL; 3 backends were programmed" in result.output
    assert re.search(r": 0 dataplane writes; 0 of [\d,]+ requests failed", result.output)


def test_on_the_kernel_a_dead_backend_is_taken_out_and_comes_back(site: Path) -> None:
    result = broken(site, "backend-down")
    assert result.exit_code == 0, result.output
    assert re.search(r"without it 0 of [\d,]+ requests failed", result.output)


def test_on_the_kernel_a_deleted_table_is_restored(site: Path) -> None:
    result = broken(site, "dataplane-wipe")
    assert result.exit_code == 0, result.output
    assert re.search(r"programmed again after [\d.]+ s; until then ", result.output)
    assert re.search(r"since then 0 of [\d,]+ requests failed", result.output)


@pytest.mark.soak
def test_on_the_kernel_a_drained_backend_gets_no_new_flow_and_loses_none(site: Path) -> None:
    result = broken(site, "drain")
    assert result.exit_code == 0, result.output
    assert re.search(r"0 new flows, 0 were cut; 0 of [\d,]+ requests failed", result.output)


@pytest.mark.soak
@needs_etcd
def test_a_whole_lab_on_the_kernel_keeps_the_promises_of_a_leader_as_well() -> None:
    with or_skip(network()):
        pass
    with commands.started(on_kernel=True) as home:
        for scene in ("balancer-restart", "leader-kill"):
            result = broken(home, scene)
            assert result.exit_code == 0, result.output


def test_a_user_without_namespaces_learns_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        netns.NoNamespaces, match=r"Operation not permitted\): run sudo make lab, or allow them with sysctl"
    ):
        netns.unshared(["true"])
