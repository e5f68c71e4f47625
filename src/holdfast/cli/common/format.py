"""Parts of the output that are the same in every command: times, counts, labelled rows, gates, the `-o` option."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click

output_flag = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Output format."
)

objects_output_flag = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    help="Output format; yaml can be given to apply.",
)


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
    return f"{label:<12}{text}"


def release_rows(changes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a `To release:` row for each command or event that opens the gates of outstanding changes."""
    opens = dict.fromkeys(one["opens"] for one in changes if one["opens"])
    yield from (row("", f"To release: {each}") for each in opens)


def release_lines(changes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the same as lines of a table."""
    yield from (line.strip() for line in release_rows(changes))
