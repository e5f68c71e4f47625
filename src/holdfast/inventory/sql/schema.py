"""The tables. Keys and documents are bytes, so that both databases order and compare them as the store does.

`objects` is the desired state; `addresses` has the one owner of each address; `outbox` lists changes that are not in
the store yet; `changes` is the history that `undo` uses and the witness of every delete; `observed` is the state that
agents report; `marks` tie inventory and store together; `ignored` lists keys of the store that are left alone; `fence`
has one row per region, `identity` and `revisions` one per inventory; `trials` is always empty: followers write to it
and roll back. The id of an outbox row is the revision of its change.

`ControlTables` are those that an inventory needs whatever its objects are: in Neutron's database they have a prefix.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.mysql import VARBINARY

METADATA = MetaData()

_ID = BigInteger().with_variant(Integer(), "sqlite")  # SQLite assigns row ids for exactly this type only

# MySQL indexes only columns of a known length.
KEY_COLUMN = LargeBinary().with_variant(VARBINARY(767), "mysql")
_WORD = Text().with_variant(String(255), "mysql")

OBJECTS = Table(
    "objects",
    METADATA,
    Column("key", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("doc", LargeBinary, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("network", Text, nullable=False, server_default=""),
    UniqueConstraint("kind", "name", name="objects_called"),
    Index("objects_on_host", "host"),
    Index("objects_on_network", "network"),
    sqlite_with_rowid=False,  # rows are stored in key order, the order in which a resync reads them
)

ADDRESSES = Table(
    "addresses",
    METADATA,
    Column("address", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Index("addresses_of", "kind", "name"),
)

OUTBOX = Table(
    "outbox",
    METADATA,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("key", LargeBinary, nullable=False),
    Column("before", LargeBinary, nullable=True),
    sqlite_autoincrement=True,  # the id of a settled row is never reused
)

CHANGES = Table(
    "changes",
    METADATA,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("old_key", LargeBinary, nullable=True),
    Column("new_key", LargeBinary, nullable=True),
    Column("old", LargeBinary, nullable=True),
    Column("new", LargeBinary, nullable=True),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Index("changes_of", "kind", "name", "revision"),
    Index("changes_from", "old_key", "revision"),
    Index("changes_to", "new_key", "revision"),
)


REVISIONS = Table(
    "revisions",
    METADATA,
    Column("only", Integer, primary_key=True),
    Column("newest", BigInteger, nullable=False),
)


class ControlTables(NamedTuple):
    """Tables of observed state, marks, ignored keys, fence and identity, and the one that followers try (C45)."""

    observed: Table
    fence: Table
    trials: Table
    marks: Table
    ignored: Table
    identity: Table


def control_tables(metadata: MetaData, prefix: str = "") -> ControlTables:
    """Make the control tables, with names that begin with `prefix`."""
    observed = Table(
        f"{prefix}observed",
        metadata,
        Column("key", KEY_COLUMN, primary_key=True),
        Column("kind", _WORD, nullable=False),
        Column("doc", LargeBinary, nullable=False),
        Column("at", DateTime(timezone=True), nullable=False),
        sqlite_with_rowid=False,  # read and written by key, in floods
    )
    fence = Table(
        f"{prefix}fence",
        metadata,
        Column("region", _WORD, primary_key=True),
        Column("epoch", BigInteger, nullable=False),
        Column("term", BigInteger, nullable=False),
    )
    trials = Table(f"{prefix}trials", metadata, Column("server", _WORD, primary_key=True))
    return ControlTables(observed, fence, trials, *_identity_tables(metadata, prefix))


def _identity_tables(metadata: MetaData, prefix: str) -> tuple[Table, Table, Table]:
    """`stored` of a mark is the number of the mark that the store was known to hold when this one was made. Changes up
    to the revision `witness_after` of the identity are no witnesses: an adoption has voided them."""
    marks = Table(
        f"{prefix}marks",
        metadata,
        Column("region", _WORD, primary_key=True),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("nonce", _WORD, nullable=False),
        Column("stored", BigInteger, nullable=False),
    )
    ignored = Table(
        f"{prefix}ignored",
        metadata,
        Column("key", KEY_COLUMN, primary_key=True),
        Column("who", _WORD, nullable=False),
        Column("why", Text, nullable=False),
        Column("at", DateTime(timezone=True), nullable=False),
    )
    identity = Table(
        f"{prefix}identity",
        metadata,
        Column("only", Integer, primary_key=True),
        Column("fleet", _WORD, nullable=False),
        Column("witness_after", BigInteger, nullable=False, server_default="0"),
    )
    return marks, ignored, identity


CONTROL = control_tables(METADATA)
OBSERVED, FENCE, TRIALS, MARKS, IGNORED, IDENTITY = CONTROL
