"""The commands as a whole: instant help, nothing loaded in vain, and no gate that names a command nobody has."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import COMMANDS, main
from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Brake, Change, Closed, Op, Owned, PauseGate, Synced, SyncGate, one_kind
from tests.reconcile.pauses import a_pause

SOURCES = Path(__file__).parents[2] / "src" / "holdfast"
NOW = Instant(10**13)
HELP_CPU = 0.150


def cpu_of_help() -> float:
    """User and system seconds of `holdfast --help` as a process."""
    child = subprocess.Popen([sys.executable, "-m", "holdfast.cli", "--help"], stdout=subprocess.DEVNULL)
    _, code, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(code)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_help_takes_at_most_150_ms_of_cpu() -> None:
    best = min(cpu_of_help() for _ in range(7))
    assert best <= HELP_CPU


def test_help_loads_nothing_that_it_does_not_need() -> None:
    script = (
        "import sys; from holdfast.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert loaded & {"rich", "prometheus_client", "yaml", "structlog", "msgspec", "asyncio", "h11", "numpy"} == set()


def commands() -> Iterator[tuple[str, ...]]:
    """Every command and every command below it."""
    context = click.Context(main)
    for name in COMMANDS:
        yield (name,)
        command = main.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, below) for below in command.list_commands(context))


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    usage, sentence, *_ = result.output.split("\n\n")
    assert usage.startswith("Usage: ")
    assert "." in sentence


def test_help_names_every_command_once_with_its_summary() -> None:
    listed = CliRunner().invoke(main, ["--help"]).output
    for name, lazy in COMMANDS.items():
        assert len(re.findall(rf"^  {name} ", listed, re.MULTILINE)) == 1
        assert lazy.summary.split()[0] in listed


@pytest.mark.parametrize(
    ("given", "hint"), [("statsu", "did you mean 'status'?"), ("frobnicate", "see holdfast --help.")]
)
def test_an_unknown_command_is_one_sentence_with_a_hint(given: str, hint: str) -> None:
    result = CliRunner().invoke(main, [given])
    assert result.exit_code == 2
    assert f"unknown command {given!r}; {hint}" in result.output


def test_a_variable_that_names_another_fleet_is_refused_and_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER", "https://ctl-1.example")
    result = CliRunner().invoke(main, ["status"])
    assert result.exit_code == 2
    assert "HOLDFAST_SERVER has no meaning: commands ask the daemons of this machine; unset it" in result.output
    assert CliRunner().invoke(main, ["agent", "--help"]).exit_code == 0, "a daemon does not end because of it"


def test_a_broken_configuration_does_not_stop_a_look_at_the_leader(tmp_path: Path) -> None:
    (broken := tmp_path / "holdfast.yaml").write_text("store: [")
    result = CliRunner().invoke(main, ["leader", "--config", str(broken), "--endpoints", "http://127.0.0.1:1"])
    assert result.exit_code == 3, "1 would mean that nobody leads"
    assert "Warning: " in result.stderr
    assert "http://127.0.0.1:1" in result.stderr


def test_version() -> None:
    assert CliRunner().invoke(main, ["version"]).output == CliRunner().invoke(main, ["--version"]).output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_for_holdfast(shell: str) -> None:
    assert "_HOLDFAST_COMPLETE" in CliRunner().invoke(main, ["completion", shell]).output


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_every_command_takes_a_configuration_file(path: tuple[str, ...]) -> None:
    help_text = CliRunner().invoke(main, [*path, "--help"]).output
    needs_none = path[0] in ("completion", "version") or "Commands:" in help_text
    assert ("  --config " in help_text) or needs_none


def test_the_default_runtime_folder_is_that_of_the_file_that_config_names(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text(f"paths: {{runtime: {tmp_path}/named}}\n")
    for words in (["status"], ["explain", "host", "r1"], ["gate", "list"], ["get", "workers"], ["plan"]):
        told = CliRunner().invoke(main, [*words, "--config", str(file)])
        assert told.exit_code == 3, words
        assert f"no Holdfast daemon is running in {tmp_path}/named" in told.output


def test_no_list_of_commands_cuts_a_sentence() -> None:
    for path in commands():
        listed = CliRunner().invoke(main, [*path, "--help"], terminal_width=80).output.partition("Commands:")[2]
        assert "..." not in listed, path


@pytest.mark.parametrize("kind", ["host", "hosts", "policies", "health-checks"])
def test_explain_takes_a_kind_in_the_plural(kind: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["explain", kind, "r1", "--runtime", str(tmp_path)])
    assert told.exit_code == 3
    assert "no Holdfast daemon is running" in told.output


def test_explain_of_an_unknown_kind_names_those_that_there_are() -> None:
    told = CliRunner().invoke(main, ["explain", "pod", "r1"])
    assert told.exit_code == 2
    assert "unknown kind 'pod': name one of backend, endpoint, flow, frontend, " in told.output


# Gates and the commands that they name


def delete(source: str) -> Change[int, str]:
    return Change(Op.DELETE, 1, Owned("v", source, 1), None)


def refusals() -> Iterator[Closed]:
    """One of each that the gates of `reconcile` can say."""
    tally = {Op.DELETE: 30}
    for sync, source in [
        (SyncGate({"db": Synced(NOW)}), "db"),
        (SyncGate({"db": Synced(NOW)}), ""),
        (SyncGate({"db": Synced(NOW, 7, ("/bad/key",))}), "db"),
    ]:
        yield _closed(sync.judge(delete(source), tally, 40, NOW + Duration(minutes=2)))
    brake: Brake[int, str] = Brake("routes/brake", one_kind("routes"))
    yield _closed(brake.judge(delete("db"), tally, 40, NOW))
    yield _closed(brake.judge(delete("db"), tally, 200, NOW))
    paused = PauseGate[int](pauses=(a_pause("ada", "tea", NOW, until=Instant(10**14)),))
    yield _closed(paused.judge(delete("db"), tally, 40, NOW))


def _closed(refusal: Closed | None) -> Closed:
    assert refusal is not None
    return refusal


@pytest.mark.parametrize("refusal", list(refusals()), ids=lambda closed: closed.reason.name)
def test_the_command_that_opens_a_gate_exists_and_accepts_the_named_arguments(refusal: Closed) -> None:
    named = re.findall(r"holdfast ([^,]+)", refusal.opens)
    for text in named:
        name, *arguments = shlex.split(text)
        command = main.get_command(click.Context(main), name)
        assert command is not None
        if isinstance(command, click.Group):
            below = command.get_command(click.Context(command), arguments.pop(0))
            assert below is not None
            command = below
        command.make_context(name, arguments)
    assert named or "fix or delete" in refusal.opens


def openings() -> Iterator[tuple[str, str]]:
    """(file, text) of everything in our sources that tells what opens a gate."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if _tells_what_opens(node):
                texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
                yield str(path.relative_to(SOURCES)), "".join(text for text in texts if isinstance(text, str))


def _tells_what_opens(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "opens" for target in node.targets)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "Closed"
    if isinstance(node, ast.FunctionDef):
        return node.name == "opened_by"
    return isinstance(node, ast.keyword) and node.arg == "opens"


def test_no_gate_in_any_package_names_a_command_that_does_not_exist() -> None:
    named = {(file, name) for file, text in openings() for name in re.findall(r"holdfast ([a-z][a-z-]*)", text)}
    assert {name for _, name in named} >= {"resume", "source"}
    assert {(file, name) for file, name in named if name not in COMMANDS} == set()


def test_a_command_of_an_extra_that_is_not_installed_says_what_to_install() -> None:
    without = "import sys; sys.modules['sqlalchemy'] = None; from holdfast.cli import main; main()"
    command = [sys.executable, "-c", without, "inventory", "init"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this needs sqlalchemy, which is not installed here: install the package holdfast-server" in done.stderr
    assert "Traceback" not in done.stderr
