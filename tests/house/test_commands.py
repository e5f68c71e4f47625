"""Commands in the documents, and what make, CI and the scripts do."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import repository

DOCUMENTS = [path for path in repository.files() if path.suffix == ".md"]
SCRIPTS = sorted((repository.ROOT / "tools").glob("*.sh"))


def goals() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", repository.text("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_command_in_the_documents_is_a_goal(document: Path) -> None:
    named = re.findall(r"(?:`|^    )make ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= goals()


def test_make_alone_lists_the_goals_that_exist() -> None:
    told = subprocess.run(["make"], cwd=repository.ROOT, capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"^make ([a-z-]+) +\S", told, re.MULTILINE))
    assert {"up", "test", "check", "setup", "system-deps", "lock", "dist"} <= listed <= goals()


def test_every_goal_says_what_it_is_for() -> None:
    explained = set(re.findall(r"^([a-z-]+):.*## \S", repository.text("Makefile"), re.MULTILINE))
    assert explained == goals()


def test_a_goal_that_is_listed_can_be_made() -> None:
    told = subprocess.run(["make"], cwd=repository.ROOT, capture_output=True, text=True, check=True).stdout
    for goal in re.findall(r"^make ([a-z-]+)", told, re.MULTILINE):
        dry = subprocess.run(["make", "-n", goal], cwd=repository.ROOT, capture_output=True, text=True, check=False)
        assert dry.returncode == 0, dry.stderr


def test_the_table_of_commands_has_every_goal() -> None:
    table = repository.text("docs/getting-started.md").partition("## The commands")[2]
    assert set(re.findall(r"^\| `(?:sudo )?make ([a-z-]+)` \|", table, re.MULTILINE)) == goals() - {"help"}


def test_every_benchmark_that_a_page_names_exists_and_has_its_numbers() -> None:
    suite = {path.stem for path in (repository.ROOT / "bench" / "suite").glob("[a-z]*.py")}
    written = [document.read_text(encoding="utf-8") for document in DOCUMENTS if document.name != "CHANGELOG.md"]
    named = re.findall(r"`(?:python -m bench |make bench ARGS=\"?)([a-z]+)", "".join(written))
    assert set(named) <= suite
    assert set(re.findall(r"^## `([a-z]+)`:", repository.text("docs/numbers.md"), re.MULTILINE)) == suite


def test_ci_runs_make_test() -> None:
    script = repository.ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^(exec )?make test\b", script.read_text(), re.MULTILINE)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_plain_shell(script: Path) -> None:
    assert script.read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", script], check=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of a clone as `make setup` looks at, in a folder with a space in its name; its `bin` is first on PATH."""
    clone = tmp_path / "a clone"
    (clone / "tools").mkdir(parents=True)
    (clone / "bin").mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements-dev.lock", "tools/setup.sh"):
        shutil.copy(repository.ROOT / name, clone / name)
    return clone


def program(clone: Path, name: str, script: str) -> Path:
    path = clone / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def make_setup(clone: Path, python: str) -> tuple[int, list[str]]:
    """Exit code, and what was said, without make's own last line."""
    environment = {"PATH": f"{clone}/bin:/usr/bin:/bin", "PYTHON": python}
    done = subprocess.run(["make", "setup"], cwd=clone, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, [line for line in done.stderr.splitlines() if "***" not in line]


def test_an_old_python_is_one_sentence(clone: Path) -> None:
    program(clone, "python-old", 'case "$1" in -V) echo Python 3.9.2;; *) exit 1;; esac')
    code, told = make_setup(clone, "python-old")
    assert code != 0
    assert len(told) == 1
    assert "Python 3.11 or newer is needed, and here is Python 3.9.2" in told[0]


def test_no_python_is_one_sentence(clone: Path) -> None:
    code, told = make_setup(clone, "python-absent")
    assert code != 0
    assert len(told) == 1
    assert "here is no python-absent" in told[0]


@pytest.mark.skipif(
    shutil.which("uv", path="/usr/bin:/bin") is not None, reason="needs a machine without uv in /usr/bin"
)
def test_a_missing_venv_module_is_one_sentence_with_the_package_to_install(clone: Path) -> None:
    program(clone, "python-bare", f'case "$*" in *ensurepip*) exit 1;; *) exec "{sys.executable}" "$@";; esac')
    code, told = make_setup(clone, "python-bare")
    assert code != 0
    assert len(told) == 1
    assert "apt-get install python3-venv" in told[0]


def test_another_system_than_linux_is_one_sentence(clone: Path) -> None:
    program(clone, "uname", "echo Darwin")
    code, told = make_setup(clone, sys.executable)
    assert code != 0
    assert told == ["make setup: Holdfast runs on Linux; this is Darwin."]


def test_a_setup_that_is_done_does_nothing(clone: Path) -> None:
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
    inputs = b"".join(
        (clone / name).read_bytes() for name in ("requirements-dev.lock", "pyproject.toml", "tools/setup.sh")
    )
    digest = subprocess.run(["sha256sum"], input=inputs, capture_output=True, check=True).stdout.decode()
    (clone / ".venv" / ".setup-stamp").write_text(f"{clone}\n{digest}")
    assert make_setup(clone, "python-absent") == (0, [])


PIP = """\
case "$*" in
  *"-m pip --version"*) exit 0;;
  *"-qq"*) exit 0;;
  *"-m pip"*) printf '%s\\n' "Collecting one==1" "Collecting two==2" "Installing collected packages: one"; exit {code};;
  *) exit 0;;
esac
"""


def terminal_output(ours: int) -> Iterator[bytes]:
    """Read all that was written to a terminal that is closed. One read returns a part of it."""
    with contextlib.suppress(OSError):  # EIO is the end
        while part := os.read(ours, 65_536):
            yield part


def setup_on_a_terminal(clone: Path, code: int) -> tuple[int, str]:
    """Exit code of `make setup` on a terminal, with a pip that ends like that, and what was shown."""
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "activate").write_text(f"{clone}/.venv")
    fake = program(clone, "python-fake", PIP.format(code=code))
    (clone / ".venv" / "bin" / "python").symlink_to(fake)
    ours, theirs = os.openpty()
    environment = {"PATH": f"{clone}/bin:/usr/bin:/bin", "PYTHON": "python-fake"}
    try:
        done = subprocess.run(["make", "setup"], cwd=clone, env=environment, stdout=theirs, stderr=theirs, check=False)
        os.close(theirs)
        shown = b"".join(terminal_output(ours)).decode()
    finally:
        os.close(ours)
    return done.returncode, shown


def test_setup_on_a_terminal_shows_how_far_it_is(clone: Path) -> None:
    lock = (repository.ROOT / "requirements-dev.lock").read_text().splitlines()
    wanted = sum("==" in line for line in lock)
    code, shown = setup_on_a_terminal(clone, 0)
    assert code == 0, shown
    assert f"make setup: package 2 of {wanted}" in shown
    assert f"make setup: installing {wanted} packages" in shown
    assert (clone / ".venv" / ".setup-stamp").exists()


def test_setup_on_a_terminal_ends_as_pip_did(clone: Path) -> None:
    code, shown = setup_on_a_terminal(clone, 1)
    assert code != 0
    assert "could not be installed" in shown
    assert not (clone / ".venv" / ".setup-stamp").exists()
