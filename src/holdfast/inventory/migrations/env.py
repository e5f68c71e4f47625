"""Alembic's environment: uses the connection of `holdfast.inventory.sql.migrate` and never opens its own."""

from __future__ import annotations

from alembic import context

from holdfast.inventory.sql.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
