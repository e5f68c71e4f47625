"""Without permission or tool, nftables is refused in one sentence; and the tool ends with its balancer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.balancer.dataplane.nftables import refusal_of_nftables
from holdfast.netlink.netns import inside
from holdfast.netlink.nftables import connection as kernel
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.netns import Namespace, network
from holdfast.testing.real.processes import running, tool, wait_until

HOLDFAST = str(Path(sys.executable).parent / "holdfast")

RESTRUCTURES = (
    "from holdfast.balancer.dataplane.nftables.connection import NftConnection; "
    "NftConnection('holdfast').restructure('')"
)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with or_skip(network()) as net:
        yield net.namespace("lb")


def test_without_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(kernel, "_TOOL_PATH", "")
    said = refusal_of_nftables("holdfast")
    assert said == "the nft tool is not installed: install nftables, or choose another balancer.dataplane"


def test_without_the_capability(namespace: Namespace, tmp_path: Path) -> None:
    config = tmp_path / "holdfast.yaml"
    config.write_text(f"paths: {{state: {tmp_path}/state, runtime: {tmp_path}/run}}\n")
    bare = [tool("setpriv"), "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    command = namespace.command(*bare, HOLDFAST, "balancer", "--config", str(config))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: nftables needs CAP_NET_ADMIN in this network namespace: run as root, or give that capability\n"
    )
    assert not (tmp_path / "run").exists()


def test_with_capability_and_tool_nothing_is_refused(namespace: Namespace) -> None:
    assert inside(namespace.system_name, lambda: refusal_of_nftables("holdfast")) is None


def test_a_tool_that_is_at_work_when_its_balancer_is_killed_is_gone_too(namespace: Namespace, tmp_path: Path) -> None:
    slow, at_work = tmp_path / "nft", tmp_path / "pid"
    slow.write_text(f"#!/bin/sh\necho $$ >{at_work}.new; mv {at_work}.new {at_work}; exec sleep 600\n")
    slow.chmod(0o755)
    balancer = namespace.start("env", f"PATH={tmp_path}:{os.environ['PATH']}", sys.executable, "-c", RESTRUCTURES)
    wait_until(at_work.exists, f"the tool is at work: {balancer.output}")
    balancer.kill()
    wait_until(lambda: not running(int(at_work.read_text())), "the tool is gone")
