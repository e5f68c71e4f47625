"""`make audit` tells no known vulnerability, a known one, and nobody to ask apart. pip-audit itself is played."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house import repository

NONE = "No known vulnerabilities found"
ONE = "Found 1 known vulnerability in 1 package\nName Version ID\nh11  0.14.0  PYSEC-1"
UNKNOWN = "h11  could not be audited: dependency not found on PyPI"
AWAY = "ERROR: Failed to connect to pypi.org"


def audit(folder: Path, answer: str, code: int) -> subprocess.CompletedProcess[str]:
    """Run the script where pip-audit gives that answer about every lock."""
    played = folder / ".tools" / "audit" / "bin" / "pip-audit"
    played.parent.mkdir(parents=True)
    played.write_text(f"#!/bin/sh\necho \"$@\" >>asked\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
    played.chmod(0o755)
    (folder / "build").mkdir()
    shutil.copy(repository.ROOT / "tools" / "audit.sh", folder)
    return subprocess.run(["sh", "audit.sh"], cwd=folder, capture_output=True, text=True, check=False)


def test_nothing_known_about_any_lock_is_good(tmp_path: Path) -> None:
    assert audit(tmp_path, NONE, 0).returncode == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split("--requirement ")[1] for line in asked] == [
        "requirements-base.lock",
        "requirements.lock",
        "requirements-dev.lock",
    ]
    assert all("--require-hashes" in line for line in asked)


def test_a_known_vulnerability_fails_and_is_shown(tmp_path: Path) -> None:
    done = audit(tmp_path, ONE, 1)
    assert done.returncode == 1
    assert "PYSEC-1" in done.stdout


@pytest.mark.parametrize(("answer", "code"), [(f"{NONE}\n{UNKNOWN}", 0), (AWAY, 1)])
def test_a_database_that_cannot_answer_is_not_taken_for_good(tmp_path: Path, answer: str, code: int) -> None:
    done = audit(tmp_path, answer, code)
    assert done.returncode == 3
    assert "nothing is said about it" in done.stderr
    assert answer.splitlines()[-1] in done.stderr
