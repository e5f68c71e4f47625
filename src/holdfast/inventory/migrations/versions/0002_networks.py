"""Adds the network of an endpoint, which is queried whenever a network changes or is deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.add_column("objects", sa.Column("network", sa.Text, nullable=False, server_default=""))
    op.create_index("objects_on_network", "objects", ["network"])
