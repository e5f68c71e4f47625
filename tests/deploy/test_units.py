"""The systemd units: understood by systemd, hardened, and what they promise about folders and capabilities."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = {unit.stem.removeprefix("holdfast-"): unit for unit in sorted((DEPLOY / "systemd").glob("*.service"))}
NETNS = DEPLOY / "examples" / "balancer-netns.conf"
CAPABILITIES = {"server": "", "agent": "CAP_NET_ADMIN", "balancer": "CAP_NET_ADMIN CAP_NET_RAW"}
EXPOSURE = 3.0

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")


def settings(unit: Path) -> dict[str, str]:
    lines = unit.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def exposure(unit: str, folder: Path) -> float:
    """Overall exposure level as systemd computes it from the files alone."""
    command = ["systemd-analyze", "security", "--offline=true", f"--root={folder}", "--no-pager", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder that has the units."""
    folder = tmp_path / "etc" / "systemd" / "system"
    folder.mkdir(parents=True)
    for unit in UNITS.values():
        shutil.copy(unit, folder)
    return tmp_path


def test_there_is_a_unit_for_each_role() -> None:
    assert set(UNITS) == set(CAPABILITIES)


@needs_systemd
@pytest.mark.parametrize("role", UNITS)
def test_systemd_understands_every_line(role: str, tmp_path: Path) -> None:
    here = tmp_path / UNITS[role].name
    here.write_text(UNITS[role].read_text(encoding="utf-8").replace("/opt/holdfast/bin/holdfast", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("role", UNITS)
def test_the_exposure_of_each_unit_is_low(role: str, root: Path) -> None:
    assert exposure(UNITS[role].name, root) <= EXPOSURE


@needs_systemd
def test_the_exposure_stays_low_with_network_namespaces(root: Path) -> None:
    drop_in = root / "etc/systemd/system/holdfast-balancer.service.d"
    drop_in.mkdir()
    without = exposure("holdfast-balancer.service", root)
    shutil.copy(NETNS, drop_in)
    assert without < exposure("holdfast-balancer.service", root) <= EXPOSURE


@pytest.mark.parametrize("role", UNITS)
def test_a_unit_has_the_capabilities_of_its_role_and_no_way_to_more(role: str) -> None:
    found = settings(UNITS[role])
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == CAPABILITIES[role]
    assert (found["NoNewPrivileges"], found["User"]) == ("yes", "holdfast")


def test_only_a_balancer_with_namespaces_administers_the_system() -> None:
    assert "CAP_SYS_ADMIN" not in "".join(unit.read_text(encoding="utf-8") for unit in UNITS.values())
    found = settings(NETNS)
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == "CAP_SYS_ADMIN"


@pytest.mark.parametrize("role", UNITS)
def test_systemd_is_told_of_readiness_and_watches(role: str) -> None:
    found = settings(UNITS[role])
    assert (found["Type"], found["Restart"], found["WatchdogSec"]) == ("notify", "always", "30s")
    assert found["ExecStart"] == f"/opt/holdfast/bin/holdfast {role}"


@pytest.mark.parametrize("role", UNITS)
def test_N18_the_folder_of_the_journal_outlives_a_stop(role: str) -> None:
    """Also at the stop of a server or a balancer beside the agent: the folder is the same."""
    found = settings(UNITS[role])
    assert (found["RuntimeDirectory"], found["RuntimeDirectoryPreserve"]) == ("holdfast", "yes")


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="needs systemd-sysusers")
def test_the_account_of_the_daemons_cannot_log_in(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    file = DEPLOY / "systemd" / "holdfast.sysusers"
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", str(file)], check=True, capture_output=True)
    account = (tmp_path / "etc" / "passwd").read_text().strip().split(":")
    assert account[0] == "holdfast"
    assert account[5:] == ["/var/lib/holdfast", "/usr/sbin/nologin"]
    assert (tmp_path / "etc" / "group").read_text().startswith("holdfast:x:")
