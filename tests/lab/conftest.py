"""One lab of real processes for all scenes: starting one takes longer than most scenes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.lab import command as commands


@pytest.fixture(scope="package")
def lab() -> Iterator[Path]:
    with commands.started() as folder:
        yield folder
