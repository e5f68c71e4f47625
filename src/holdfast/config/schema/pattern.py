"""Patterns: regular expressions that are matched in linear time, whatever the text.

A backtracking matcher can be made to run for seconds by a hostile text, and everything else stands still meanwhile
(B36). RE2 has no constructs that need backtracking, and refuses them by name. Patterns and texts are bytes; `$` matches
at the very end only, not before a last newline.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol


class NotAPattern(ValueError):
    """The text is not a pattern that can be matched in linear time; the message names the construct."""


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: bytes | bytearray, /) -> object | None:
        """Find the pattern anywhere in the text."""
        ...


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    # protection: B36
    import re2  # type: ignore[import-untyped]  # here: most commands need no pattern

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(text.encode(), options)
    except re2.error as error:
        detail = error.args[0]
        raise NotAPattern(detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)) from None
    return compiled
