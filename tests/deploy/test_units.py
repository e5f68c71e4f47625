"""The systemd units: understood by systemd, and what they promise about folders and capabilities."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
AGENT = Path(__file__).parents[2] / "deploy" / "systemd" / "holdfast-agent.service"


def settings(unit: Path) -> dict[str, str]:
    lines = unit.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(unit.read_text(encoding="utf-8").replace("/opt/holdfast/bin/holdfast", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_N18_the_folder_of_the_journal_outlives_a_stop() -> None:
    found = settings(AGENT)
    assert (found["RuntimeDirectory"], found["RuntimeDirectoryPreserve"]) == ("holdfast", "yes")


def test_the_agent_has_one_capability_and_no_way_to_more() -> None:
    found = settings(AGENT)
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == "CAP_NET_ADMIN"
    assert found["NoNewPrivileges"] == "yes"
