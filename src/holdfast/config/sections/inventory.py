"""Inventory: the database that is the source of truth, and how often etcd is compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, File, SecretFile, Section

NEUTRON = "neutron"
_SCHEMES = ("sqlite:///", "postgresql://")


class InventorySettings(Section, frozen=True, kw_only=True):
    """Source of truth, and its synchronisation into etcd."""

    database: Annotated[
        str | None,
        FieldDoc(
            "URL of the SQL inventory: `sqlite:////var/lib/holdfast/inventory.db` for a fleet with one server, "
            "`postgresql://holdfast@db.example/holdfast` for all others, `neutron` for OpenStack. `null` for none: "
            "nothing is synced."
        ),
    ] = None
    neutron_config: Annotated[
        tuple[File, ...],
        FieldDoc("Configuration files of Neutron, as its own services get them; for `database: neutron` only."),
    ] = ()
    password_file: Annotated[
        SecretFile | None,
        FieldDoc("File with the password of the database user. Refused if every user of the machine can read it."),
    ] = None
    poll_every: Annotated[
        timedelta,
        FieldDoc(
            "Interval of polling for changes. It only matters when a notification of the database is lost.",
            small="polling loads the database",
            big="a lost notification delays a change for that long",
            least=timedelta(milliseconds=100),
            most=timedelta(minutes=10),
        ),
    ] = timedelta(seconds=5)
    resync_interval: Annotated[
        timedelta,
        FieldDoc(
            "Interval between two resyncs, which compare all of etcd with all of the inventory; `0s` for one at start "
            "only.",
            small="resyncs load the database and etcd",
            big="a foreign change in etcd stays for that long",
            least=timedelta(0),
            most=timedelta(days=7),
        ),
    ] = timedelta(minutes=10)

    @property
    def is_neutron(self) -> bool:
        return self.database == NEUTRON

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.is_neutron:
            if not self.neutron_config:
                yield FieldConflict(("neutron_config", "database"), "must name the configuration files of Neutron")
        elif self.database is not None and not self.database.startswith(_SCHEMES):
            yield FieldConflict(("database",), "must begin with sqlite:/// or postgresql://, or be neutron")
        elif self.database is not None and ":" in _user(self.database):
            yield FieldConflict(("database", "password_file"), "holds a password: put it into inventory.password_file")
        if self.password_file is not None and not (self.database or "").startswith("postgresql://"):
            yield FieldConflict(("password_file", "database"), "has no effect: only PostgreSQL asks for a password")


def _user(database: str) -> str:
    before, at, _ = database.partition("://")[2].partition("@")
    return before if at else ""
