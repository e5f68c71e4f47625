"""`.ci/run` runs the tests and those on Neutron, as root the tests again as a normal user, and fails if any fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house import repository

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can run the tests as somebody else")
NEUTRON = "test-openstack"
SHOW = 'echo "$$(id -u) $$PWD $$HOME $$TMPDIR"; test -w "$$HOME" && test -w "$$TMPDIR"'


def run(clone: Path, recipe: str, on_neutron: str = "true") -> tuple[int, list[list[str]]]:
    """Exit code, and the words of each line that `make test` printed in a clone where it does no more than that;
    `make test-openstack` prints one with its name alone."""
    (clone / ".ci").mkdir(parents=True)
    shutil.copy(repository.ROOT / ".ci" / "run", clone / ".ci" / "run")
    (clone / "Makefile").write_text(f"test:\n\t@{recipe}\ntest-openstack:\n\t@echo {NEUTRON}; {on_neutron}\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(clone), "TMPDIR": str(clone)}  # nothing of a make around us
    git = ["git", "-c", "user.name=ci", "-c", "user.email=ci@localhost"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "tiny"]):
        subprocess.run([*git, *words], cwd=clone, env=environment, check=True)
    done = subprocess.run([clone / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, [line.split() for line in done.stdout.splitlines()]


@pytest.mark.skipif(os.getuid() == 0, reason="needs a normal user")
def test_a_normal_user_runs_the_tests_once(tmp_path: Path) -> None:
    code, lines = run(tmp_path / "clone", SHOW)
    assert code == 0
    assert [line[:2] for line in lines] == [[str(os.getuid()), str(tmp_path / "clone")], [NEUTRON]]


@needs_root
def test_root_runs_the_tests_again_as_a_normal_user_in_a_clone_that_is_gone_afterwards(tmp_path: Path) -> None:
    code, (first, neutron, second) = run(tmp_path / "clone", SHOW)
    assert (code, neutron) == (0, [NEUTRON])
    assert first[:2] == ["0", str(tmp_path / "clone")]
    assert second[0] != "0"
    assert not any(Path(folder).exists() for folder in second[1:])
    assert {path.owner() for path in (tmp_path / "clone").rglob("*")} == {"root"}, "what is ours was handed over"


@needs_root
def test_a_failure_as_a_normal_user_fails_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    code, lines = run(tmp_path / "clone", f'{SHOW}; test "$$(id -u)" = 0')
    assert code != 0
    assert len(lines) == 3
    assert not any(Path(folder).exists() for folder in lines[2][1:])


def test_a_failure_in_the_first_run_fails_the_run(tmp_path: Path) -> None:
    code, lines = run(tmp_path / "clone", f"{SHOW}; false")
    assert code != 0
    assert len(lines) == 1


def test_a_failure_on_neutron_fails_the_run(tmp_path: Path) -> None:
    code, lines = run(tmp_path / "clone", SHOW, on_neutron="false")
    assert code != 0
    assert lines[1:] == [[NEUTRON]]
