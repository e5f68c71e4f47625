"""Every test of the inventory runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.real.postgres import Postgres
from tests.inventory.harness import REGION


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/inventory.db"
    made: str = request.getfixturevalue("postgres").create_database()
    return made


@pytest.fixture
def engine(address: str) -> Iterator[Engine]:
    with fresh_engine(address) as made:
        yield made


@pytest.fixture
def inventory(engine: Engine) -> SqlInventory:
    return SqlInventory(engine)


@pytest.fixture
def editor(engine: Engine) -> Editor:
    return Editor(engine, REGION)


@pytest.fixture
def postgres_engine(postgres: Postgres) -> Iterator[Engine]:
    """For what only PostgreSQL can do."""
    with fresh_engine(postgres.create_database()) as made:
        yield made
