"""Progress of long work, on a terminal only: a bar where the total is known, a count where it is not."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

_BAR = 24
Show = Callable[[int], None]
"""Takes how much is done."""


def bar(done: int, total: int, what: str) -> str:
    """Return one line: a bar, how many of how many, and what is done with them. Pure."""
    filled = _BAR * min(done, total) // total if total else _BAR
    return f"{'█' * filled}{'░' * (_BAR - filled)}  {done:,} of {total:,} {what}"


@contextlib.contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Show]:
    """Show progress on stderr for the length of the block, in one line that is cleared at the end."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    widest = 0

    def show(done: int) -> None:
        nonlocal widest
        line = f"{done:,} {what}" if total is None else bar(done, total, what)
        widest = max(widest, len(line))
        click.echo(f"\r{line:<{widest}}", nl=False, err=True)

    try:
        yield show
    finally:
        if widest:
            click.echo(f"\r{'':<{widest}}\r", nl=False, err=True)
