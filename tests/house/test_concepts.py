"""docs/concepts.md says of every gate what the code says, and names files that exist."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

import pytest

from docs.gate_table import GATES, SOURCES, reasons, table
from holdfast.reconcile import Reason
from tests.house.repository import ROOT

PAGE = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")


def enums() -> Iterator[type[Reason]]:
    """Every enum of reasons in our sources."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and "Reason" in map(ast.unparse, node.bases):
                name = ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts)
                yield getattr(importlib.import_module(name), node.name)


@pytest.mark.parametrize("enum", list(enums()), ids=lambda enum: enum.__name__)
def test_every_reason_is_in_the_gate_table(enum: type[Reason]) -> None:
    shown = [member for members in reasons().values() for member in members]
    assert [member for member in enum if member not in shown] == []
    assert [member.value for member in enum if member.value not in table()] == []


def test_every_gate_has_a_text_and_every_text_a_gate() -> None:
    assert set(reasons()) == set(GATES)


def test_the_page_has_a_place_for_the_gate_table() -> None:
    assert PAGE.count("<!-- gate table -->") == 1


def test_the_files_and_folders_of_the_page_exist() -> None:
    named = re.findall(r"`([a-z_/]+(?:\.py|/))`", PAGE)
    assert len(named) >= 20
    assert [name for name in named if not (SOURCES / name).exists()] == []
