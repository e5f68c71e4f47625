"""Patterns are matched in linear time, or refused by name."""

from __future__ import annotations

import re
import time

import pytest

from holdfast.config.schema import pattern
from holdfast.config.schema.pattern import NotAPattern, Pattern, compile_pattern
from holdfast.testing.fault import fault


def backtracking(text: str) -> Pattern:
    """B36 as it was."""
    return re.compile(text.encode())


@fault(
    "B36",
    without="holdfast.config.schema.pattern:compile_pattern",
    by=f"{__name__}:backtracking",
    sees=(AssertionError, r"time.process_time\(\) - began < 0.2"),
)
def test_B36_a_hostile_text_costs_nothing() -> None:
    began = time.process_time()
    assert pattern.compile_pattern("(a+)+$").search(b"a" * 24 + b"b") is None
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize(
    ("text", "named"),
    [("(?=x)", "(?="), (r"(a)\1", r"\1"), ("(", "missing )"), (r"ok\Z", r"\Z"), ("a{2000}", "{2000}")],
)
def test_a_construct_that_cannot_be_matched_in_linear_time_is_named(text: str, named: str) -> None:
    with pytest.raises(NotAPattern) as refused:
        compile_pattern(text)
    assert named in str(refused.value)


def test_patterns_match_bytes() -> None:
    assert compile_pattern("ö").search("schön".encode())
    assert compile_pattern(r"\xff").search(b"\xff")
    assert compile_pattern("ok$").search(b"ok")
    assert not compile_pattern("ok$").search(b"ok\n")
