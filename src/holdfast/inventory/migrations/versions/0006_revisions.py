"""Adds the counter of revisions. It begins at the highest number that was given out, whatever became of its change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision: str | None = "0005"
branch_labels: str | None = None
depends_on: str | None = None

_RECORDED = (
    "SELECT max(revision) FROM changes",
    "SELECT max(revision) FROM objects",
    "SELECT max(id) FROM outbox",
)
_GIVEN_OUT = {
    "sqlite": "SELECT max(seq) FROM sqlite_sequence WHERE name = 'outbox'",
    "postgresql": "SELECT last_value FROM outbox_id_seq WHERE is_called",
}


def upgrade() -> None:
    made = op.create_table(
        "revisions",
        sa.Column("only", sa.Integer, primary_key=True),
        sa.Column("newest", sa.BigInteger, nullable=False),
    )
    connection = op.get_bind()
    queries = (*_RECORDED, _GIVEN_OUT[connection.dialect.name])
    newest = max(connection.execute(sa.text(query)).scalar() or 0 for query in queries)
    op.bulk_insert(made, [{"only": 1, "newest": newest}])
