"""Creates the first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _wanted()
    _history()
    op.create_table(
        "observed",
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("doc", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "fence",
        sa.Column("region", sa.Text, primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("term", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "identity",
        sa.Column("only", sa.Integer, primary_key=True),
        sa.Column("fleet", sa.Text, nullable=False),
    )


def _wanted() -> None:
    op.create_table(
        "objects",
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("doc", sa.LargeBinary, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.UniqueConstraint("kind", "name", name="objects_called"),
        sqlite_with_rowid=False,
    )
    op.create_index("objects_on_host", "objects", ["host"])
    op.create_table(
        "addresses",
        sa.Column("address", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
    )
    op.create_index("addresses_of", "addresses", ["kind", "name"])


def _history() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("before", sa.LargeBinary, nullable=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "changes",
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("old_key", sa.LargeBinary, nullable=True),
        sa.Column("old", sa.LargeBinary, nullable=True),
        sa.Column("new", sa.LargeBinary, nullable=True),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("changes_of", "changes", ["kind", "name", "revision"])
