"""Escaping of control characters on the way to the terminal, once for all commands and logs.

Names and sentences come from etcd, agents, backends and whoever writes to them. An escape sequence among them could
clear the problems from the screen, move the cursor or reorder a line; it is shown as text instead. What Holdfast itself
writes passes: colours, line breaks, the clearing of the screen by `-w`, and progress bars.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

_CLEAR = "\x1b[2J\x1b[1;1H"
"""As `click.clear` writes it, alone."""
_COLOUR = r"\x1b\[(?:0|1|2|22|3[1-79]|9[0-7])?(?:;(?:0|1|2|22|3[1-79]|9[0-7]))*m"
_PROGRESS = r"\A\r(?:\x1b\[\?25l)?|\A\x1b\[\?25h(?=\n)"
_HIDDEN = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
_FOUND = re.compile(f"({_PROGRESS}|{_COLOUR})|({_HIDDEN})")


def escaped(text: str) -> str:
    """Return the text with control characters, and those that reorder a line, written as `\\x1b` or `\\u202e`."""
    return text if text == _CLEAR else _FOUND.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    if found[1] is not None:
        return found[1]
    code = ord(found[2])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"  # the longer form also fits into JSON


class EscapedStream:
    """A text stream that escapes what is written to it, and is its original otherwise."""

    def __init__(self, original: TextIO) -> None:
        self._original = original
        self.rich_proxied_file = original
        """Stream for rich, whose own sequences move the cursor: texts are escaped before rich gets them."""

    def write(self, text: str) -> int:
        self._original.write(escaped(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape what is written to stdout and stderr."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", EscapedStream(one)) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
