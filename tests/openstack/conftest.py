"""A Neutron database on SQLite, without a Neutron."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.testing.fakes.neutron import NeutronDatabase


@pytest.fixture
def database(tmp_path: Path) -> Iterator[NeutronDatabase]:
    made = NeutronDatabase(open_engine(database_url(f"sqlite:///{tmp_path}/neutron.db")))
    yield made
    made.engine.dispose()
