"""Connections to the database, their timeouts, and the translation of driver errors into `DatabaseAway`.

PostgreSQL ends a session that stays idle in a transaction after `idle`, so that a frozen leader cannot hold the fence
for ever (C34); no statement or lock is waited for longer than `wait`. SQLite runs in WAL mode: readers see one moment
and never wait for the writer. MySQL is Neutron's database.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import QueuePool

from holdfast.config.sections.inventory import VERIFIED, database_options, stays_here
from holdfast.inventory.api import DatabaseAway
from holdfast.model.base.time import Duration

if TYPE_CHECKING:
    from holdfast.inventory.sql.silence import SilenceLimitedConnection

_UTF8 = {"client_encoding": "utf8"}
"""Without it, a server without an encoding (SQL_ASCII) would return text as bytes."""
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
"""Certificates that a machine trusts: Debian's, Red Hat's, SUSE's. The OpenSSL in psycopg's wheels knows none."""
_KEEPALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
_CONNECT_S = 5
_TIMEOUTS = ("55P03", "57014")
"""PostgreSQL's lock_timeout and statement_timeout; with equal values either may fire first."""
_IDLE_TIMEOUT = "25P03"
BUSY_MS = "busy_ms"
"""Option of a connection: milliseconds for which a transaction waits for SQLite's writer, if not for those of its
engine."""
ANSWER_S = "answer_s"
"""Option of a connection: seconds without an answer after which a transaction on PostgreSQL is given up, if not those
of its engine; None for no limit."""
_NOT_USABLE = ("42P01", "42703", "42501", "25006")
"""Undefined table, undefined column, insufficient privilege, read-only transaction."""
_MYSQL_LOCK_TIMEOUT = 1205
_MYSQL_NO_TABLE, _MYSQL_NO_COLUMN = 1146, 1054


@dataclass(frozen=True, slots=True)
class DatabaseTimeouts:
    """Timeouts of a session."""

    wait: Duration = Duration(seconds=10)
    """statement_timeout and lock_timeout."""
    idle: Duration = Duration(seconds=5)
    """idle_in_transaction_session_timeout."""
    snapshot_idle: Duration = Duration(seconds=60)
    """The same for the snapshot of a resync, which holds no lock and must survive a slow store."""


class Expired(Enum):
    """A time limit that ended a transaction."""

    LOCK = "lock"
    STATEMENT = "statement"
    IDLE = "idle"


_EXPIRED = {"55P03": Expired.LOCK, "57014": Expired.STATEMENT, _IDLE_TIMEOUT: Expired.IDLE}


def database_url(address: str, password: str | None = None, ca_file: str | None = None) -> URL:
    """The URL of the database for SQLAlchemy; a PostgreSQL elsewhere has to prove its name. Raises ValueError."""
    try:
        url = make_url(address)
    except ArgumentError as error:
        raise ValueError(
            f"inventory.database {address!r} is not a database URL: write sqlite:////FILE or postgresql://USER@HOST/NAME"
        ) from error
    backend = url.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise ValueError(f"inventory.database names {backend}: use sqlite or postgresql")
    if backend == "sqlite" and url.database in (None, "", ":memory:"):
        raise ValueError("inventory.database must name a file: sqlite:////var/lib/holdfast/inventory.db")
    if backend == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
        if ca_file is not None or not stays_here(address):
            # protection: without it, libpq would go on unencrypted, with whoever answers
            authorities = ca_file or database_options(address).get("sslrootcert") or _trusted_here()
            url = url.update_query_dict({"sslmode": VERIFIED, "sslrootcert": authorities})
        return url if password is None else url.set(password=password)
    return url


def _trusted_here() -> str:
    known = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((one for one in known if one and Path(one).is_file()), "system")


def open_engine(url: URL, limits: DatabaseTimeouts | None = None, *, create: bool = True) -> Engine:
    """An engine for the database at a URL, not connected yet. `create` makes the file of SQLite and its folder."""
    limits = limits or DatabaseTimeouts()
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, limits, create=create)
    if url.get_backend_name() == "mysql":
        return _mysql(url, limits)
    arguments: dict[str, Any] = {
        **_UTF8,
        **_KEEPALIVE,
        "connect_timeout": _CONNECT_S,
        "options": session_options(limits),
    }
    engine = create_engine(
        url, isolation_level="READ COMMITTED", connect_args=arguments, pool_pre_ping=True, pool_size=4, pool_timeout=10
    )
    silence = answer_within(limits.wait)
    event.listen(engine, "do_connect", partial(_connect_postgres, silence))
    event.listen(engine, "begin", partial(_begin_postgres, silence))
    event.listen(engine, "checkin", partial(_returned_postgres, silence))
    return engine


def answer_within(statement: Duration) -> float | None:
    """Return how long a server may be silent: a little longer than it may work on one statement."""
    # protection: C25, a worker that waits for ever for a frozen database would be taken for stalled
    return statement.total_seconds() + _CONNECT_S


def _connect_postgres(
    silence: float | None, _dialect: object, _record: object, args: Any, options: Any
) -> SilenceLimitedConnection:
    from holdfast.inventory.sql.silence import SilenceLimitedConnection  # loads psycopg, which SQLite does without

    connection = SilenceLimitedConnection.connect(*args, **options)
    connection.answer_within = silence
    return connection


def _begin_postgres(silence: float | None, connection: Connection) -> None:
    driver: Any = connection.connection.dbapi_connection
    driver.answer_within = connection.get_execution_options().get(ANSWER_S, silence)


def _returned_postgres(silence: float | None, connection: Any, _record: object) -> None:
    if connection is not None:  # None: it was closed
        connection.answer_within = silence


def _mysql(url: URL, limits: DatabaseTimeouts) -> Engine:
    """Neutron's database. MariaDB ends idle transactions and long statements itself; for MySQL the driver gives up."""
    wait, idle = int(limits.wait.total_seconds()), int(limits.idle.total_seconds())
    mariadb = f"/*M!100311 , max_statement_time={wait}, idle_write_transaction_timeout={idle} */"  # protection: C34
    arguments: dict[str, Any] = {
        "connect_timeout": _CONNECT_S,
        "read_timeout": wait + _CONNECT_S,
        "write_timeout": wait + _CONNECT_S,
        "init_command": f"SET SESSION innodb_lock_wait_timeout={wait}, time_zone='+00:00' {mariadb}",
    }
    return create_engine(
        url, isolation_level="READ COMMITTED", connect_args=arguments, pool_pre_ping=True, pool_size=4, pool_timeout=10
    )


def session_options(limits: DatabaseTimeouts) -> str:
    """Session options that end the transaction of a frozen process."""
    # protection: C34
    times = {
        "statement_timeout": limits.wait,
        "lock_timeout": limits.wait,
        "idle_in_transaction_session_timeout": limits.idle,
    }
    return " ".join(f"-c {name}={milliseconds(value)}" for name, value in times.items())


def _sqlite(url: URL, limits: DatabaseTimeouts, *, create: bool) -> Engine:
    file = Path(str(url.database))
    if create:
        with contextlib.suppress(OSError):  # SQLite reports the missing file at the first statement
            file.parent.mkdir(parents=True, exist_ok=True)
    where = f"file:{quote(str(file))}?mode={'rwc' if create else 'rw'}"

    def connect() -> sqlite3.Connection:
        if create:
            with contextlib.suppress(OSError):  # it exists, or SQLite reports why it cannot be made
                # SQLite itself would make it readable to everybody; its log and index follow the mode of the file.
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        wait = limits.wait.total_seconds()
        return sqlite3.connect(where, uri=True, timeout=wait, check_same_thread=False, isolation_level=None)

    engine = create_engine(url, creator=connect, poolclass=QueuePool)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", partial(_begin_sqlite, milliseconds(limits.wait)))
    event.listen(engine, "handle_error", _drop_read_only)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an acknowledged write survives a power cut
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _drop_read_only(context: ExceptionContext) -> None:
    """Drop a connection that SQLite opened while its file was not writable: it would stay read-only."""
    error = context.original_exception
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
        context.is_disconnect = True


def _begin_sqlite(busy_ms: int, connection: Connection) -> None:
    options = connection.get_execution_options()
    # Set each time: connections are shared, and SQLite keeps the last value.
    cursor = connection.connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {options.get(BUSY_MS, busy_ms)}")
    cursor.close()
    # The driver's implicit transactions would let a reader become a writer half-way.
    connection.exec_driver_sql("BEGIN" if options.get("reads", False) else "BEGIN IMMEDIATE")


def is_postgres(engine: Engine) -> bool:
    return engine.dialect.name == "postgresql"


def is_mysql(engine: Engine) -> bool:
    return engine.dialect.name == "mysql"


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A short read transaction."""
    with translated_errors(), engine.connect().execution_options(reads=True) as connection, connection.begin():
        yield connection


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A write transaction: commits at the end of the block, or rolls back."""
    with translated_errors(), engine.begin() as connection:
        yield connection


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Raise `DatabaseAway` with one sentence when the database is unreachable, busy, not set up or not ours."""
    try:
        yield
    except DBAPIError as error:
        if not is_away(error):
            raise
        raise DatabaseAway(message_of(error)) from error


def is_away(error: DBAPIError) -> bool:
    """Tell an unavailable database from a mistake of ours."""
    if isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated:
        return True
    if mysql_code(error) in (_MYSQL_NO_TABLE, _MYSQL_NO_COLUMN):
        return True
    # SQLite raises nothing more precise for a file that is damaged or not a database.
    return sqlstate(error) in (*_TIMEOUTS, _IDLE_TIMEOUT, *_NOT_USABLE) or type(error) is DatabaseError


def expired(error: DBAPIError) -> Expired | None:
    """The time limit that was reached, if one was."""
    return Expired.LOCK if _is_busy(error) else _EXPIRED.get(sqlstate(error))


def _is_busy(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


def is_lock_timeout(error: DBAPIError) -> bool:
    """Tell whether another session held a lock for longer than we wait."""
    return _is_busy(error) or sqlstate(error) in _TIMEOUTS or mysql_code(error) == _MYSQL_LOCK_TIMEOUT


def sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", "") or "")


def mysql_code(error: DBAPIError) -> int:
    """The error number of MySQL; 0 for other databases."""
    if not type(error.orig).__module__.startswith("pymysql"):
        return 0
    code = error.orig.args[0] if error.orig is not None and error.orig.args else 0
    return code if isinstance(code, int) else 0


def message_of(error: DBAPIError) -> str:
    """The message of the database on one line, without the statement."""
    words = str(error.orig)
    if mysql_code(error) in (_MYSQL_NO_TABLE, _MYSQL_NO_COLUMN):
        return f"its tables are missing or old ({words}): run neutron-db-manage --subproject holdfast upgrade heads"
    if sqlstate(error) == "42P01" or "no such table" in words:
        return "it has no tables yet: run holdfast inventory init"
    if "unable to open database file" in words:
        return "its file does not exist, or may not be opened: run holdfast inventory init, or check inventory.database"
    if sqlstate(error) == "42703" or "no such column" in words or "has no column" in words:
        return "its tables are from an earlier version: run holdfast inventory init"
    if is_lock_timeout(error):
        return "another transaction has held a lock for too long: try again"
    return " ".join(words.split()) or type(error.orig).__name__


def snapshot_options(limits: DatabaseTimeouts) -> str:
    return f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds(limits.snapshot_idle)}"


def milliseconds(duration: Duration) -> int:
    return duration // Duration(milliseconds=1)


def in_utc(at: datetime) -> datetime:
    """Convert a time of the database: SQLite keeps no time zone, PostgreSQL answers in that of the session."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
