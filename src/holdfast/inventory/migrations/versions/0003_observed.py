"""Stores `observed` in key order on SQLite, as `objects`: reading it in order needs no index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return  # PostgreSQL has no such tables
    op.rename_table("observed", "observed_before")
    op.create_table(
        "observed",
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("doc", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO observed SELECT key, kind, doc, at FROM observed_before ORDER BY key")
    op.drop_table("observed_before")
