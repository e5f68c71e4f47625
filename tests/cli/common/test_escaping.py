"""Terminals under attack: what others sent is shown as text, whichever command prints it."""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast.balancer.probing.external import Observation
from holdfast.cli import main
from holdfast.cli.common.escaping import EscapedStream, escaped
from holdfast.cli.probe.screen import table
from holdfast.runtime.control import ControlServer, Declined, Request, Who
from holdfast.runtime.daemon.report import DaemonReport, WorkerReport

HOSTILE = "\x1b[2J\x1b[1;1HNothing needs you\r\x1b]52;c;cm0gLXJm\x07 \x9b8m \u202egnp.exe \x1b[8mhidden\x7f"
SHOWN = (
    "\\x1b[2J\\x1b[1;1HNothing needs you\\x0d\\x1b]52;c;cm0gLXJm\\x07 \\u009b8m \\u202egnp.exe \\x1b[8mhidden\\u007f"
)
OUR_COLOURS = re.compile(r"\x1b\[(?:0|1|2|3[1-7])m")
OBEYED = "\x1b\r\x07\x7f\x9b\u202e"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """A runtime folder with the socket of a daemon whose every word is hostile."""
    ready, done, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def status(_request: Request, _who: Who) -> Any:
        worker = WorkerReport("elector", 1, "running", "healthy", HOSTILE, 0.1, 0, 0.1, 1, False, trouble=HOSTILE)
        return msgspec.to_builtins(DaemonReport("server", HOSTILE, 1, 0.1, [worker]))

    async def refuse(_request: Request, _who: Who) -> Any:
        raise Declined(HOSTILE)

    async def serve() -> None:
        async with ControlServer(tmp_path / "server.sock", {"status": status, "tell": refuse}):
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield tmp_path
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(30)
        loop.close()


@pytest.mark.parametrize("words", [["step-down", "--reason", "x"], ["get", "workers"], ["status"]])
def test_no_command_passes_on_what_a_terminal_would_obey(runtime: Path, words: list[str]) -> None:
    told = CliRunner().invoke(main, [*words, "--runtime", str(runtime)], color=True)
    assert "Nothing needs you" in told.output
    assert [one for one in OBEYED if one in OUR_COLOURS.sub("", told.output)] == []


def test_it_is_shown_as_text() -> None:
    assert escaped(f"backend {HOSTILE}\n") == f"backend {SHOWN}\n"


def test_what_holdfast_writes_itself_passes() -> None:
    for ours in (
        click.style("held", fg="red", bold=True),
        "a\tb\n",
        "\x1b[2J\x1b[1;1H",
        "\r\x1b[?25l  [###]  3/9",
        "\r8 of 9",
    ):
        assert escaped(ours) == ours


@pytest.mark.parametrize(
    "sequence", ["\x1b[8m", "\x1b[30m", "\x1b[41m", "\x1b[38;5;0m", "\x1b[1;1H", "a\x1b[2J\x1b[1;1H"]
)
def test_colours_that_hide_text_and_moves_of_the_cursor_do_not(sequence: str) -> None:
    assert "\x1b" not in escaped(sequence)


def test_json_stays_json() -> None:
    given = {"why": HOSTILE}
    assert json.loads(escaped(json.dumps(given, ensure_ascii=False))) == given


def test_a_log_on_a_terminal_is_escaped_too() -> None:
    script = (
        "import sys; from holdfast.cli.common.escaping import EscapedStream; sys.stderr = EscapedStream(sys.stderr);"
        "from holdfast.config.sections.log import LogSettings; from holdfast.runtime.log import setup_logging;"
        "setup_logging(LogSettings(format='console'), role='server', worker='syncer'); import structlog;"
        "structlog.get_logger().warning('refused', why=sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", script, HOSTILE], capture_output=True, text=True, check=True)
    assert "Nothing needs you" in done.stderr
    assert [one for one in OBEYED if one in done.stderr] == []


def test_what_a_probed_server_answers_is_escaped_before_rich_draws_it() -> None:
    one = Observation("web")
    one.last_error = f"L7STS {HOSTILE}"
    one.answered_by[HOSTILE] += 1
    drawn = io.StringIO()
    Console(file=drawn, width=400, color_system=None).print(table([one]))
    assert "Nothing needs you" in drawn.getvalue()
    assert [each for each in OBEYED if each in drawn.getvalue()] == []


def test_rich_writes_to_the_terminal_itself() -> None:
    original = io.StringIO()
    assert EscapedStream(original).rich_proxied_file is original
