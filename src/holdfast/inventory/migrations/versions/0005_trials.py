"""Adds the table to which a server writes, and rolls back, in order to find out whether the database takes writes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table("trials", sa.Column("server", sa.Text, primary_key=True))
