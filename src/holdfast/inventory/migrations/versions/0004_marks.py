"""Adds marks, ignored keys, and what a witness of a delete needs: the new key of each change, indexes by key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = "0003"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "marks",
        sa.Column("region", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("nonce", sa.Text, nullable=False),
        sa.Column("stored", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "ignored",
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.add_column("identity", sa.Column("witness_after", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("changes", sa.Column("new_key", sa.LargeBinary, nullable=True))
    # The key after a change is the key before the next change of the same object, or its key now. An object that was
    # deleted without a record has neither: the key before the change stays, so that the row is no witness of a delete.
    op.execute(
        """
        UPDATE changes SET new_key = COALESCE(
            (SELECT later.old_key FROM changes later
             WHERE later.kind = changes.kind AND later.name = changes.name AND later.revision > changes.revision
             ORDER BY later.revision LIMIT 1),
            (SELECT objects.key FROM objects WHERE objects.kind = changes.kind AND objects.name = changes.name),
            old_key
        ) WHERE new IS NOT NULL
        """
    )
    op.create_index("changes_from", "changes", ["old_key", "revision"])
    op.create_index("changes_to", "changes", ["new_key", "revision"])
