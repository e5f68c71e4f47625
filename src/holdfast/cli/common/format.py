"""Parts of the output that are the same in every command: times, counts, labelled rows, gates, the `-o` option."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import click

F = TypeVar("F", bound=Callable[..., Any])

LABEL = 12
"""Columns of a label."""
_COMMAND = re.compile(r"^\s+To [a-z ]+: ")
_NARROWEST = 60
"""Columns that a wrapped text takes at least."""

DOCUMENTS = ("json", "yaml")
"""Formats for programs: they print everything that the table shows, and more."""

output_flag = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", *DOCUMENTS]),
    default="table",
    help="Output format.",
)

objects_output_flag = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", *DOCUMENTS, "name"]),
    default="table",
    help="Output format; yaml of objects of the inventory can be given to apply.",
)


def print_document(found: object, output: str) -> None:
    """Print what `-o json` or `-o yaml` asks for."""
    if output == "json":
        click.echo(json.dumps(found, indent=2))
        return
    import yaml  # slow to import, and needed here only

    click.echo(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120), nl=False)


def watchable(command: F) -> F:
    """Add `-w` and `--interval` to a command that shows something: with `-w` it runs again and again.

    What goes wrong meanwhile is shown in its place, since it may be over at the next look: a daemon that restarts.
    """

    @functools.wraps(command)
    def looped(*args: Any, watch: bool, interval: float, **given: Any) -> None:
        while watch:
            click.clear()
            try:
                command(*args, **given)
            except click.UsageError:
                raise
            except click.ClickException as error:
                error.show()
            except click.exceptions.Exit:
                pass  # the exit code of one look
            time.sleep(interval)
        command(*args, **given)

    return cast("F", watch_flags(looped))


def watch_flags(command: F) -> F:
    """Add `-w` and `--interval`; they arrive as `watch` and `interval`."""
    command = click.option(
        "--interval",
        type=click.FloatRange(min=0.1),
        default=1.0,
        show_default=True,
        help="With -w: seconds between refreshes.",
    )(command)
    return click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")(command)


Paint = Callable[[str, str], str]
"""Returns a text in a colour; an empty colour leaves it as it is."""


def plain(text: str, _colour: str) -> str:
    return text


def paint(text: str, colour: str) -> str:
    """Colour a text; `click.echo` drops the colours again where the output is no terminal, or NO_COLOR is set."""
    return click.style(text, fg=colour) if colour else text


def parts(head: str, *texts: str, width: int | None = None) -> list[str]:
    """Join the parts of a row with three spaces; what does not fit into `width` goes to lines indented like `head`."""
    lines = [head]
    for text in filter(None, texts):
        is_first = not lines[-1].strip() or lines[-1] == head
        longer = lines[-1] + ("" if is_first else "   ") + text
        if is_first or width is None or len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(" " * len(head) + text)
    return lines


def wrapped(head: str, text: str, width: int | None, indent: str | None = None) -> list[str]:
    """Return a text after its head; what does not fit into `width` goes to lines indented like the head."""
    if width is None:
        return [head + text]
    return textwrap.wrap(
        text,
        max(width, _NARROWEST),
        initial_indent=head,
        subsequent_indent=" " * len(head) if indent is None else indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None where it is none, and a program may read the lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(line: str, width: int | None, indent: int = LABEL) -> list[str]:
    """Wrap a line of a page below its text, which begins at column `indent`. A command to copy is left as it is."""
    if width is None or len(line) <= width or _COMMAND.search(line):
        return [line]
    label, text = line[:indent], line[indent:]
    return wrapped(label, text, width, " " * indent)


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: 1 peer, 2,000 peers."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def short(seconds: float) -> str:
    """Format a duration as 0.4 s, 3m34s, 2h05m or 2d13h."""
    if seconds < 59.95:  # above, it would read 60.0 s
        return f"{seconds:.1f} s"
    whole = int(seconds + 0.05)
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3_600}h{whole % 3_600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3_600:02d}h"


def clock(seconds: float) -> str:
    """Format a duration as 00:03:34."""
    whole = int(seconds)
    return f"{whole // 3_600:02d}:{whole % 3_600 // 60:02d}:{whole % 60:02d}"


def count(number: int | None) -> str:
    """Format a count as 34,812; – if there is nothing to count."""
    return "–" if number is None else f"{number:,}"


def row(label: str, text: str) -> str:
    """Return one line of `explain`: a label and what it says."""
    return f"{label:<{LABEL}}{text}"


def release_rows(changes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a `To release:` row for each command or event that opens the gates of outstanding changes."""
    opens = dict.fromkeys(one["opens"] for one in changes if one["opens"])
    yield from (row("", f"To release: {each}") for each in opens)


def release_lines(changes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the same as lines of a table."""
    yield from (line.strip() for line in release_rows(changes))
