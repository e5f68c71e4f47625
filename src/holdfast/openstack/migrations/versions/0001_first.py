"""Make the first tables: outbox, mirror and control tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARBINARY

revision = "holdfast_0001"
down_revision = None
branch_labels = None
depends_on = None

_OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb3", "mysql_collate": "utf8mb3_general_ci"}
"""Those of Neutron's tables: a foreign key needs equal columns on both sides."""


def upgrade() -> None:
    op.create_table(
        "holdfast_outbox",
        sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("resource", sa.String(64), nullable=False),
        **_OPTIONS,
    )
    op.create_table(
        "holdfast_mirror",
        sa.Column("key", VARBINARY(767), primary_key=True),
        sa.Column("resource", sa.String(64), nullable=False, index=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("gone_at", sa.DateTime(), nullable=True),
        _deleted_with("port_id", "ports"),
        _deleted_with("group_id", "securitygroups"),
        _deleted_with("subnet_id", "subnets"),
        **_OPTIONS,
    )
    _control_tables()


def _deleted_with(name: str, table: str) -> sa.Column[str]:
    return sa.Column(name, sa.String(36), sa.ForeignKey(f"{table}.id", ondelete="SET NULL"), nullable=True)


def _control_tables() -> None:
    op.create_table("holdfast_trials", sa.Column("server", sa.String(255), primary_key=True), **_OPTIONS)
    op.create_table(
        "holdfast_observed",
        sa.Column("key", VARBINARY(767), primary_key=True),
        sa.Column("kind", sa.String(255), nullable=False),
        sa.Column("doc", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        **_OPTIONS,
    )
    op.create_table(
        "holdfast_fence",
        sa.Column("region", sa.String(255), primary_key=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        **_OPTIONS,
    )
    op.create_table(
        "holdfast_marks",
        sa.Column("region", sa.String(255), primary_key=True),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("nonce", sa.String(255), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        **_OPTIONS,
    )
    op.create_table(
        "holdfast_ignored",
        sa.Column("key", VARBINARY(767), primary_key=True),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        **_OPTIONS,
    )
    op.create_table(
        "holdfast_identity",
        sa.Column("only", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("fleet", sa.String(255), nullable=False),
        sa.Column("witness_after", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("settled", sa.BigInteger(), nullable=False, server_default="0"),
        **_OPTIONS,
    )
