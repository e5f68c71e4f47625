"""`holdfast sysdump`: an archive of what the commands print, without the secrets of this machine."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main

SECRET = "hunter2-the-second"


def dump(folder: Path, *flags: str) -> dict[str, str]:
    target = folder / "case.tar.gz"
    told = CliRunner().invoke(main, ["sysdump", "-f", str(target), "--runtime", str(folder / "run"), *flags])
    assert told.exit_code == 0, told.output
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        return {
            member.name.partition("/")[2]: found.read().decode()
            for member in archive
            if (found := archive.extractfile(member)) is not None
        }


def test_a_dump_is_made_while_no_daemon_runs_and_has_no_secret(tmp_path: Path) -> None:
    password = tmp_path / "etcd.password"
    password.write_text(SECRET)
    password.chmod(0o600)
    config = tmp_path / "holdfast.yaml"
    config.write_text(
        "store:\n"
        "  endpoints: [http://127.0.0.1:9]\n"
        f"  user: agent\n  password_file: {password}\n"
        "balancer:\n"
        "  healthchecks:\n"
        f"    web: {{type: http, header_files: ['X-Api-Key: {password}']}}\n"
    )
    found = dump(tmp_path, "--config", str(config))
    assert {"about.json", "status.txt", "config.txt", "doctor.txt", "history.json"} <= found.keys()
    assert "no Holdfast daemon is running" in found["status.txt"]
    assert str(password) in found["config.txt"], "the path of a secret is no secret"
    assert [name for name, text in found.items() if SECRET in text] == []


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "case.tar.gz").write_text("mine")
    with pytest.raises(AssertionError, match="cannot be written: File exists"):
        dump(tmp_path)
    assert (tmp_path / "case.tar.gz").read_text() == "mine"
