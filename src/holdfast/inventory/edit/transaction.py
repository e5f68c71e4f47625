"""The transaction of an edit: one at a time, with time limits of its own.

A leader's session ends soon, because it may hold the fence (C34). On PostgreSQL an edit holds nothing that a leader
waits for, and a large one takes minutes: between two statements it plans for 200,000 objects. Under the leader's limits
it would never succeed (C58). Its own limits are long, but an edit that was frozen does not lock out others for ever.
They are not configurable: an edit that needs longer ones is better split.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.changes import EditRefused
from holdfast.inventory.sql.engine import (
    ANSWER_S,
    BUSY_MS,
    Expired,
    answer_within,
    expired,
    is_postgres,
    milliseconds,
    reading,
    writing,
)
from holdfast.model.base.time import Duration

_EDITS = 0x686F6C6465646974
"""The advisory lock of an edit on PostgreSQL. SQLite has one writer at a time anyway."""
_SET = text(
    "SELECT set_config('statement_timeout', :statement, true), set_config('lock_timeout', :lock, true), "
    "set_config('idle_in_transaction_session_timeout', :idle, true)"
)
_SQLITE_CACHE_KIB = 65_536
"""With SQLite's own 2 MiB a large edit writes most pages of its indexes several times."""


@dataclass(frozen=True, slots=True)
class EditTimeouts:
    """Time limits of an edit."""

    statement: Duration = Duration(minutes=5)
    lock: Duration = Duration(minutes=1)
    """Longest wait for another edit."""
    idle: Duration = Duration(minutes=5)
    """Longest time between two statements."""


class EditTimedOut(EditRefused):
    """The edit reached one of its time limits. Nothing was changed."""


@contextlib.contextmanager
def editing(engine: Engine, limits: EditTimeouts, *, dry_run: bool = False) -> Iterator[Connection]:
    """A transaction during which no other edit runs. Row locks would not do: an edit that waited for another does not
    see the row that the other one inserted in place of the locked one, so a delete would miss it. A dry run only
    reads, and waits for nobody. Raises `EditTimedOut`."""
    begin = reading if dry_run else writing
    options = {BUSY_MS: milliseconds(limits.lock), ANSWER_S: answer_within(limits.statement)}
    with _explained(limits), begin(engine.execution_options(**options)) as connection:
        if is_postgres(engine):
            set_limits(connection, limits)
            if not dry_run:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _EDITS})
        else:
            connection.exec_driver_sql(f"PRAGMA cache_size = -{_SQLITE_CACHE_KIB}")
        yield connection


def set_limits(connection: Connection, limits: EditTimeouts) -> None:  # protection: C58
    """Replace the limits of a leader's session until this transaction ends."""
    times = {"statement": limits.statement, "lock": limits.lock, "idle": limits.idle}
    connection.execute(_SET, {name: str(milliseconds(time)) for name, time in times.items()})


@contextlib.contextmanager
def _explained(limits: EditTimeouts) -> Iterator[None]:
    try:
        yield
    except DatabaseAway as away:
        cause = away.__cause__
        limit = expired(cause) if isinstance(cause, DBAPIError) else None
        if limit is None:
            raise
        raise EditTimedOut(_sentence(limit, limits)) from away


def _sentence(limit: Expired, limits: EditTimeouts) -> str:
    match limit:
        case Expired.LOCK:
            return f"another edit has been running for {_s(limits.lock)}, so nothing was changed: try again after it"
        case Expired.STATEMENT:
            return (
                f"the database took more than {_s(limits.statement)} for one statement, so nothing was changed: apply "
                "fewer objects at once, or see what keeps the database busy"
            )
        case Expired.IDLE:
            return (
                f"the edit stood still for more than {_s(limits.idle)} and the database ended it, so nothing was "
                "changed: apply fewer objects at once"
            )


def _s(duration: Duration) -> str:
    return f"{duration.total_seconds():g} s"
