"""One store and one inventory for every restore test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import SyncerHarness, syncer_harness


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made
