"""Bringing a database to the schema of this version. Done by an operator, never by a server that happens to start."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Engine, text

from holdfast.inventory.changes import EditRefused
from holdfast.inventory.sql.engine import writing

_FOLDER = Path(__file__).parents[1] / "migrations"
_LOCK = 0x686F6C6466617374
"""PostgreSQL's advisory lock that makes two migrations at once one after the other."""


def migrate(engine: Engine, to: str = "head") -> None:
    """Makes the tables, or brings them up to date; nothing when they are. All steps are one transaction.

    `to` names an earlier step, for tests of the way from there. Raises `EditRefused` where a newer version was before.
    """
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            connection.execute(text("SET LOCAL statement_timeout = 0"))  # an index of many objects takes its time
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, to)
        except CommandError as error:
            raise EditRefused(
                f"the tables are those of a newer version, so this one changes nothing: {error}"
            ) from error
