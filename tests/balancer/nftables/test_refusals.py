"""Whoever cannot use nftables is told so in one sentence, and nothing is tried."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.balancer.dataplane.nftables import kernel, refusal_of_nftables
from holdfast.testing.fixtures import or_skip
from holdfast.testing.inside import inside
from holdfast.testing.netns import Namespace, network
from holdfast.testing.processes import tool

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


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


def test_with_both_there_is_none(namespace: Namespace) -> None:
    assert inside(namespace.system_name, lambda: refusal_of_nftables("holdfast")) is None
