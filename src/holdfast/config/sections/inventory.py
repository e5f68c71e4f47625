"""The inventory: which database is the source of truth, and how often the store is audited against it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, SecretFile, Section

_SCHEMES = ("sqlite:///", "postgresql://")


class InventorySettings(Section, frozen=True, kw_only=True):
    """The source of truth, and its way into the store."""

    database: Annotated[
        str | None,
        FieldDoc(
            "Address of the SQL inventory: `sqlite:////var/lib/holdfast/inventory.db` for a fleet with one server, "
            "`postgresql://holdfast@db.example/holdfast` for all others; `null` for none, then nothing is synced."
        ),
    ] = None
    password_file: Annotated[
        SecretFile | None,
        FieldDoc(
            "File with the password of the database's user. Refused when every user of the machine could read it."
        ),
    ] = None
    poll_every: Annotated[
        timedelta,
        FieldDoc(
            "How often changes are looked for when nobody announces them; normally the database does, at once.",
            small="needless load on the database",
            big="a lost announcement delays a change for that long",
            least=timedelta(milliseconds=100),
            most=timedelta(minutes=10),
        ),
    ] = timedelta(seconds=5)
    resync_interval: Annotated[
        timedelta,
        FieldDoc(
            "Between two audits, which compare all of the store with all of the inventory; `0s` for at start only.",
            small="needless load on database and store",
            big="what somebody else changed in the store stays wrong for that long",
            least=timedelta(0),
            most=timedelta(days=7),
        ),
    ] = timedelta(minutes=10)

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.database is not None and not self.database.startswith(_SCHEMES):
            yield FieldConflict(("database",), "must begin with sqlite:/// or postgresql://")
        elif self.database is not None and ":" in _user(self.database):
            yield FieldConflict(("database", "password_file"), "holds a password: put it into inventory.password_file")
        if self.password_file is not None and not (self.database or "").startswith("postgresql://"):
            yield FieldConflict(("password_file", "database"), "has no effect: only PostgreSQL asks for a password")


def _user(database: str) -> str:
    before, at, _ = database.partition("://")[2].partition("@")
    return before if at else ""
