"""Screen of `holdfast lab up` on a terminal: progress while the fleet starts, then its state, until Ctrl-C.

The fleet runs in a process of its own, which writes its logs to a file: the terminal is for the person in front of it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli.common.control_socket import roles
from holdfast.cli.common.escaping import escaped
from holdfast.cli.common.format import counted, paint
from holdfast.cli.common.live import live
from holdfast.cli.status.page import is_healthy, render
from holdfast.cli.status.view import StatusView, read_status
from holdfast.lab.fleet import layout
from holdfast.lab.fleet.fleet import ROLE

LOG = "lab.log"
_REFRESH_S = 1.0
_BAR = 24


def run(folder: Path, command: Sequence[str], welcome: Callable[[], None]) -> int:
    """Run the fleet behind the screen; returns its exit code. `welcome` is printed once everything is healthy."""
    log = folder / LOG
    began = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603
    console = Console(stderr=True)
    try:
        with live(console=console, vertical_overflow="crop") as screen:
            welcomed = False
            while process.poll() is None:
                view = _view(folder / "run")
                if not welcomed and view is not None and is_complete(view, expected(folder / "state")):
                    screen.update(Text(), refresh=True)
                    welcomed = True
                    welcome()
                lines = _state(view) if welcomed and view else starting(view, folder, time.monotonic() - began)
                screen.update(Text.from_ansi(escaped(lines)), refresh=True)
                time.sleep(_REFRESH_S)
    except KeyboardInterrupt:
        console.print("stopping")
    # The terminal has interrupted the fleet as well; it may also be that only the fleet has noticed.
    if process.wait():
        raise click.ClickException(f"the fleet ended: {last_line(log) or f'exit code {process.returncode}'}")
    console.print("stopped; the logs stay in", os.path.relpath(log))
    return 0


def expected(state: Path) -> frozenset[str]:
    """Names of the daemons of a lab, as `status` shows them."""
    return frozenset({ROLE, "lb-1", *layout.SERVERS, *layout.hosts(state)})


def is_complete(view: StatusView, daemons: frozenset[str]) -> bool:
    return daemons <= {one.role for one in view.reports} and is_healthy(view)


def starting(view: StatusView | None, folder: Path, seconds: float) -> str:
    """Render the progress of a start. Pure but for the name of the folder."""
    wanted = expected(folder / "state")
    there = sorted({one.role for one in view.reports} & wanted) if view else []
    filled = _BAR * len(there) // len(wanted)
    bar = "█" * filled + "░" * (_BAR - filled)
    names = f": {', '.join(there)}" if there else ""
    return "\n".join(
        [
            f"Holdfast is starting   {bar}  {len(there)} of {counted(len(wanted), 'daemon')}   {seconds:.0f} s",
            f"  running{names}" if there else "  etcd and the inventory come first",
            f"  logs: {os.path.relpath(folder / LOG)}   Ctrl-C stops everything",
        ]
    )


def last_line(log: Path) -> str:
    """Return the last line of a log, which says why a start failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _view(runtime: Path) -> StatusView | None:
    if not roles(runtime):
        return None
    try:
        return asyncio.run(read_status(runtime))
    except click.ClickException:
        return None


def _state(view: StatusView) -> str:
    return render(view, datetime.now(UTC), Console(stderr=True).width, paint)


def wanted() -> bool:
    """Return True if a person sits in front of this command."""
    return sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
