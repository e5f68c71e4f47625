"""Folder for journals on tmpfs, as in production."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hft-journal-", dir=memory) as name:
        yield Path(name)


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "journal"
