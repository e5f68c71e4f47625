"""Connections to the database: which, with which time-outs, and what is said when it does not answer.

Leader sessions on PostgreSQL give up by themselves: a frozen leader's open transaction ends after `idle`, so that it
cannot hold the fence for ever (C34), and no statement or lock is waited for longer than `patience`. SQLite runs in WAL
mode: readers see one moment and never wait for the writer.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import QueuePool

from holdfast.inventory.api import DatabaseAway
from holdfast.model.base.time import Duration

_UTF8 = {"client_encoding": "utf8"}
"""Also where the server has no encoding at all (SQL_ASCII): text would come as bytes."""
_KEEPALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
_CONNECT_S = 5
_TIMEOUTS = ("55P03", "57014")
"""PostgreSQL's lock_timeout and statement_timeout; with both at the same value either may be first."""
_UNFIT = ("42P01", "42703", "42501", "25006")
"""No such table, no such column, no right to it, read-only."""


@dataclass(frozen=True, slots=True)
class DatabaseTimeouts:
    """For how long the database lets us wait, and us idle."""

    patience: Duration = Duration(seconds=10)
    """statement_timeout and lock_timeout."""
    idle: Duration = Duration(seconds=5)
    """idle_in_transaction_session_timeout."""
    snapshot_idle: Duration = Duration(seconds=60)
    """The same for a resync's snapshot: it holds no lock, and a slow store must not end it."""


def database_url(address: str, password: str | None = None) -> URL:
    """The address as SQLAlchemy wants it. Raises ValueError with a sentence."""
    try:
        url = make_url(address)
    except ArgumentError as error:
        raise ValueError(f"inventory.database {address!r} is not an address of a database") from error
    backend = url.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise ValueError(f"inventory.database names {backend}; there are sqlite and postgresql")
    if backend == "sqlite" and url.database in (None, "", ":memory:"):
        raise ValueError("inventory.database must name a file: sqlite:////var/lib/holdfast/inventory.db")
    if backend == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
        return url if password is None else url.set(password=password)
    return url


def open_engine(url: URL, limits: DatabaseTimeouts | None = None) -> Engine:
    """An engine of the database at that address. Nothing is connected yet."""
    limits = limits or DatabaseTimeouts()
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, limits)
    arguments: dict[str, Any] = {
        **_UTF8,
        **_KEEPALIVE,
        "connect_timeout": _CONNECT_S,
        "options": session_options(limits),
    }
    return create_engine(
        url, isolation_level="READ COMMITTED", connect_args=arguments, pool_pre_ping=True, pool_size=4, pool_timeout=10
    )


def session_options(limits: DatabaseTimeouts) -> str:
    """C34: what every session is told, so that a process that was frozen in a transaction does not hold it for ever."""
    times = {
        "statement_timeout": limits.patience,
        "lock_timeout": limits.patience,
        "idle_in_transaction_session_timeout": limits.idle,
    }
    return " ".join(f"-c {name}={_ms(value)}" for name, value in times.items())


def _sqlite(url: URL, limits: DatabaseTimeouts) -> Engine:
    with contextlib.suppress(OSError):  # then there is no file, and SQLite says so whenever it is asked for something
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    arguments = {"timeout": limits.patience.total_seconds(), "check_same_thread": False, "isolation_level": None}
    engine = create_engine(url, connect_args=arguments, poolclass=QueuePool)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    event.listen(engine, "handle_error", _leave_read_only)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # what was acknowledged is there after a power cut
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _leave_read_only(context: ExceptionContext) -> None:
    """A connection that was opened while its file could not be written stays read-only: the next one may be better."""
    error = context.original_exception
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
        context.is_disconnect = True


def _begin_sqlite(connection: Connection) -> None:
    # The driver's own notion of when a transaction begins would let a reader become a writer half-way.
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def is_postgres(engine: Engine) -> bool:
    return engine.dialect.name == "postgresql"


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A short read of what is committed now."""
    with answered(), engine.connect().execution_options(reads=True) as connection, connection.begin():
        yield connection


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes: all of it is there at the end of the block, or nothing."""
    with answered(), engine.begin() as connection:
        yield connection


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Turns what a driver raises when the database is away, busy, not set up or not ours into one sentence."""
    try:
        yield
    except DBAPIError as error:
        if not is_away(error):
            raise
        raise DatabaseAway(said(error)) from error


def is_away(error: DBAPIError) -> bool:
    """Whether the database cannot or will not serve us now; all else is a mistake of ours."""
    if isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated:
        return True
    # SQLite raises nothing more precise for a file that is broken or none of its own.
    return sqlstate(error) in (*_TIMEOUTS, *_UNFIT) or type(error) is DatabaseError


def is_lock_timeout(error: DBAPIError) -> bool:
    """Whether somebody else held a lock for longer than we wait."""
    return sqlstate(error) in _TIMEOUTS or getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


def sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", "") or "")


def said(error: DBAPIError) -> str:
    """What the database said, on one line, without the statement."""
    words = str(error.orig)
    if sqlstate(error) == "42P01" or "no such table" in words:
        return "it has no tables yet: run holdfast inventory init"
    if sqlstate(error) == "42703" or "no such column" in words or "has no column" in words:
        return "its tables are those of an earlier version: run holdfast inventory init"
    if is_lock_timeout(error):
        return "somebody else's change has been under way for too long: try again"
    return " ".join(words.split()) or type(error.orig).__name__


def snapshot_options(limits: DatabaseTimeouts) -> str:
    return f"SET LOCAL idle_in_transaction_session_timeout = {_ms(limits.snapshot_idle)}"


def _ms(duration: Duration) -> int:
    return duration // Duration(milliseconds=1)
