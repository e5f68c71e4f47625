"""Runs the migrations for neutron-db-manage, with a version table of our own."""

from __future__ import annotations

from alembic import context
from neutron.db.migration.connection import DBConnection

_VERSIONS = "alembic_version_holdfast"


def _run() -> None:
    settings = context.config.neutron_config  # type: ignore[attr-defined]
    with DBConnection(settings.database.connection, context.config.attributes.get("connection")) as connection:
        context.configure(connection=connection, version_table=_VERSIONS)
        with context.begin_transaction():
            context.run_migrations()


_run()
