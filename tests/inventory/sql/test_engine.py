"""Connections to the database do not depend on the state of file or server at the time they were opened."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from sqlalchemy import Engine

from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql import engine as module
from holdfast.inventory.sql.engine import ANSWER_S, DatabaseTimeouts, reading, writing
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.time import Duration
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fault import fault
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


def test_nobody_else_reads_the_file_of_an_inventory(tmp_path: Path) -> None:
    file = tmp_path / "inventory.db"
    with fresh_engine(f"sqlite:///{file}") as engine, engine.connect() as open_connection:
        Editor(engine, REGION).change([host(1)], who="alice")
        open_connection.exec_driver_sql("SELECT 1")  # the log of changes exists while a connection is open
        modes = {one.name: oct(one.stat().st_mode & 0o777) for one in tmp_path.iterdir()}
    assert modes == {file.name: "0o600", f"{file.name}-wal": "0o600", f"{file.name}-shm": "0o600"}


def test_a_database_without_an_encoding_works(postgres: Postgres) -> None:
    name = "ascii"
    postgres.query("postgres", f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    with fresh_engine(f"postgresql+psycopg://holdfast@/{name}?host={postgres.home}") as engine:
        Editor(engine, REGION).change([host(1)], who="alice")
        assert SqlInventory(engine).waiting() == 1


SOON = DatabaseTimeouts(wait=Duration(milliseconds=500))


@fault(
    "C25",
    without="holdfast.inventory.sql.engine:answer_within",
    returns=None,
    sees=(pytest.fail.Exception, "DID NOT RAISE DatabaseAway"),
)
def test_C25_a_frozen_server_is_away_instead_of_keeping_a_worker_for_ever(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CONNECT_S", 1)
    with fresh_engine(postgres.create_database(), SOON) as engine:
        with pytest.raises(DatabaseAway, match="has not answered for"):
            ask_while_frozen(engine, postgres)
        assert SqlInventory(engine).waiting() == 0


def ask_while_frozen(engine: Engine, postgres: Postgres) -> None:
    """Freeze the server between two statements of a transaction; it goes on when the second one has ended or 4 s have
    passed."""
    with ThreadPoolExecutor(1) as thread, reading(engine) as connection:
        postgres.process.signal_tree(signal.SIGSTOP)
        try:
            statement = thread.submit(connection.exec_driver_sql, "SELECT 1")
            wait([statement], timeout=4)
        finally:
            postgres.process.signal_tree(signal.SIGCONT)
        statement.result()


def test_a_transaction_may_have_a_longer_limit_of_its_own_and_the_next_one_has_the_usual(postgres: Postgres) -> None:
    with fresh_engine(postgres.create_database(), SOON) as engine:
        patient = engine.execution_options(**{ANSWER_S: None})
        with writing(patient) as connection:
            driver = connection.connection.dbapi_connection
            assert driver is not None
            assert driver.answer_within is None
        with reading(engine) as connection:
            assert connection.connection.dbapi_connection is driver
            assert driver.answer_within == module.answer_within(SOON.wait)


def test_a_large_answer_that_comes_slowly_is_no_silence(postgres: Postgres) -> None:
    with fresh_engine(postgres.create_database()) as engine:
        options = {ANSWER_S: 0.3}
        slowly = "SELECT repeat('x', 20000), pg_sleep(0.1) FROM generate_series(1, 12)"
        began = time.monotonic()
        with reading(engine.execution_options(**options)) as connection:
            assert len(connection.exec_driver_sql(slowly).all()) == 12
        assert time.monotonic() - began > 1
