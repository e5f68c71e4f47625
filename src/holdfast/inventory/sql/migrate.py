"""Schema migrations. An operator runs them (`holdfast inventory init`); a server never does at its start."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Engine, text

from holdfast.inventory.changes import EditRefused
from holdfast.inventory.sql.engine import ANSWER_S, writing

_FOLDER = Path(__file__).parents[1] / "migrations"
_LOCK = 0x686F6C6466617374
"""The advisory lock on PostgreSQL that serializes two migrations."""


def migrate(engine: Engine, to: str = "head") -> None:
    """Create the tables or bring them up to date, in one transaction.

    `to` names an earlier step, for tests of an upgrade. Raises `EditRefused` when the tables are from a newer version.
    """
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    with writing(engine.execution_options(**{ANSWER_S: None})) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            connection.execute(text("SET LOCAL statement_timeout = 0"))  # building an index takes long
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, to)
        except CommandError as error:
            raise EditRefused(f"the tables are from a newer version, so nothing was changed: {error}") from error
