"""Terminal screen of `holdfast probe`: one line per target, redrawn while results arrive, and single-key commands."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterable, Sequence

from rich.markup import escape
from rich.table import Table

from holdfast.balancer.probing.external import Observation
from holdfast.cli.common.escaping import escaped
from holdfast.cli.common.live import live as live_display

_DRAW_EVERY = 0.25
_MOST_NAMED = 6


class Screen:
    """The terminal, if there is one: draws the table and reads keys."""

    def __init__(self, *, live: bool) -> None:
        self._live = live_display(transient=True) if live else None
        self._reads_keys = live and sys.stdin.isatty()
        self._stack = contextlib.ExitStack()
        self._drawn = 0.0
        self.keyboard: Sequence[int] = ()

    def __enter__(self) -> Screen:
        if self._reads_keys:
            fd = sys.stdin.fileno()
            self._stack.callback(termios.tcsetattr, fd, termios.TCSADRAIN, termios.tcgetattr(fd))
            tty.setcbreak(fd)
            self.keyboard = (fd,)
        if self._live is not None:
            self._stack.enter_context(self._live)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def key(self) -> str:
        """Return the key that was pressed, or an empty string."""
        if not self.keyboard or not select.select(self.keyboard, [], [], 0)[0]:
            return ""
        return os.read(self.keyboard[0], 1).decode(errors="replace")

    def draw(self, seen: Iterable[Observation], *, paused: bool) -> None:
        now = time.monotonic()
        if self._live is not None and now - self._drawn >= _DRAW_EVERY:
            self._drawn = now
            self._live.update(table(seen, caption="paused: space resumes" if paused else "space pauses, q quits"))
            self._live.refresh()


def table(seen: Iterable[Observation], caption: str | None = None) -> Table:
    """Return the table of all targets; latencies are in milliseconds, over the last hundred answers."""
    shown = Table(caption=caption, caption_justify="left", box=None, pad_edge=False)
    shown.add_column("TARGET", overflow="fold")
    for name in ("PROBES", "OK", "P50", "P95", "P99", "MAX"):
        shown.add_column(name, justify="right")
    shown.add_column("ERRORS")
    shown.add_column("ANSWERED BY")
    for one in seen:
        latencies = [f"{value:.1f}" for value in one.latencies().values()] or ["–"] * 4
        share = f"{one.success:.1%}" if one.passed + one.failed else "–"
        shown.add_row(_text(one.name), f"{one.probes:,}", share, *latencies, _errors(one), _answered_by(one))
    return shown


def _errors(one: Observation) -> str:
    counts = [f"{code} ×{count:,}" for code, count in one.errors.most_common()]
    if one.late:
        counts.append(f"late ×{one.late:,}")
    last = one.last_error.partition(" ")[2]
    return _text(", ".join(counts) + (f": {last}" if last else ""))


def _answered_by(one: Observation) -> str:
    """Format the most frequent answering backends with their share."""
    total = one.answered_by.total()
    named = [f"{name} {count / total:.0%}" for name, count in one.answered_by.most_common(_MOST_NAMED)]
    rest = len(one.answered_by) - len(named)
    return _text(", ".join(named) + (f", {rest} more" if rest else ""))


def _text(given: str) -> str:
    """Return a text that rich takes for no markup, and the terminal for no command."""
    return escape(escaped(given))
