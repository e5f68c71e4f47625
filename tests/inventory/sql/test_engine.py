"""Connections to the database do not depend on the state of file or server at the time they were opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.real.postgres import Postgres
from tests.inventory.harness import REGION, host


def test_a_connection_opened_on_a_read_only_file_is_dropped(tmp_path: Path) -> None:
    with fresh_engine(f"sqlite:///{tmp_path}/inventory.db") as engine:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only=ON")  # as SQLite has it for a file without the right to write
        editor = Editor(engine, REGION)
        with pytest.raises(DatabaseAway, match="readonly"):
            editor.change([host(1)], who="alice")
        editor.change([host(1)], who="alice")
        assert SqlInventory(engine).waiting() == 1


def test_a_database_without_an_encoding_works(postgres: Postgres) -> None:
    name = "ascii"
    postgres.query("postgres", f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    with fresh_engine(f"postgresql+psycopg://holdfast@/{name}?host={postgres.home}") as engine:
        Editor(engine, REGION).change([host(1)], who="alice")
        assert SqlInventory(engine).waiting() == 1
