"""`make test-openstack` skips where packages cannot be had, and fails where our lock of them is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house import repository

_OFFLINE = "ERROR: No matching distribution found for neutron==29.0.0"
_WRONG = "ERROR: In --require-hashes mode, all requirements must have their versions pinned with ==."
_PYTHON = """#!/bin/sh
case "$*" in
tools/find_*) echo /usr/bin/true ;;
*"-m venv"*) mkdir -p build/openstack/venv/bin && cp "$0" build/openstack/venv/bin/python ;;
*"--require-hashes"*) [ -z "{error}" ] || {{ echo "{error}" >&2; exit 1; }} ;;
*"-m pytest"*) echo "$*" ;;
esac
"""


def _run(folder: Path, error: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a Python that installs nothing, and prints how it would run pytest."""
    for needed in ("tools", ".venv/bin", "tests/openstack/neutron"):
        (folder / needed).mkdir(parents=True)
    shutil.copy(repository.ROOT / "tools" / "test_openstack.sh", folder / "tools")
    (folder / "requirements-openstack.lock").touch()
    (folder / "tests/openstack/neutron/test_ports.py").touch()
    python = folder / ".venv" / "bin" / "python"
    python.write_text(_PYTHON.format(error=error))
    python.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    run = ["sh", "tools/test_openstack.sh", *words]
    return subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("error", "code", "said"), [(_OFFLINE, 0, "skipped"), (_WRONG, 1, "renew it with make lock")])
def test_only_packages_that_cannot_be_had_skip_the_tests(tmp_path: Path, error: str, code: int, said: str) -> None:
    done = _run(tmp_path, error)

    assert (done.returncode, error in done.stderr, said in done.stderr) == (code, True, True), done.stderr


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["-k", "C41"], "-m pytest tests/openstack/neutron -k C41"),
        (
            ["-x", "tests/openstack/neutron/test_ports.py::test_a_port"],
            "-m pytest -x tests/openstack/neutron/test_ports.py::test_a_port",
        ),
    ],
)
def test_all_tests_run_unless_some_are_named(tmp_path: Path, words: list[str], asked: str) -> None:
    done = _run(tmp_path, "", *words)

    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, asked), done.stderr
