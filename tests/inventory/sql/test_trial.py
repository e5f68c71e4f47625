"""Trial of the database: it finds out whether the database takes writes, and leaves nothing behind (C45)."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, event, text

from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.sql.engine import is_postgres, reading
from holdfast.inventory.sql.trial import try_database


def test_a_trial_leaves_nothing_behind(engine: Engine) -> None:
    try_database(engine, "ctl-1")
    try_database(engine, "ctl-1")
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM trials")).scalar() == 0


def test_a_trial_leaves_the_fence_alone(postgres_engine: Engine) -> None:
    """A follower that waited for the fence would look unable, and one that locked it would delay the leader."""
    with postgres_engine.begin() as other:
        other.execute(text("LOCK TABLE fence IN ACCESS EXCLUSIVE MODE"))
        try_database(postgres_engine, "ctl-1")


def test_a_database_that_takes_no_writes_fails_the_trial(engine: Engine) -> None:
    read_only = "SET default_transaction_read_only = on" if is_postgres(engine) else "PRAGMA query_only = ON"

    @event.listens_for(engine, "engine_connect")
    def refuse_writes(connection: object) -> None:
        raw = connection.connection.driver_connection  # type: ignore[attr-defined]
        raw.execute(read_only)
        raw.commit()

    with pytest.raises(DatabaseAway, match=r"read-?only"):
        try_database(engine, "ctl-1")


def test_tables_of_an_earlier_version_fail_the_trial_with_what_to_run(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE trials"))
    with pytest.raises(DatabaseAway, match="run holdfast inventory init"):
        try_database(engine, "ctl-1")
