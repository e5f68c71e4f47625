"""The repository as tests of the house see it: its root, its files, its locks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = {"build", "dist", "__pycache__"}


def files() -> Iterator[Path]:
    """Every file that belongs to the repository: not what tools and builds have put beside them."""
    for entry in sorted(ROOT.iterdir()):
        if entry.is_file():
            yield entry
        elif entry.name == ".ci" or not (entry.name.startswith(".") or entry.name in NOT_OURS):
            yield from (path for path in sorted(entry.rglob("*")) if path.is_file() and not NOT_OURS & set(path.parts))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pyproject() -> dict[str, Any]:
    return tomllib.loads(text("pyproject.toml"))


def locked(name: str) -> dict[str, list[str]]:
    """A lock as {requirement: its options}, the way pip joins its lines."""
    lines = text(name).replace("\\\n", " ").splitlines()
    return {line.partition(" --")[0].strip(): line.split()[1:] for line in lines if line.strip()}
