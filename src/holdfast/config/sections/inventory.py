"""Inventory: the database that is the source of truth, and how often etcd is compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import parse_qsl, unquote

from holdfast.config.schema.field import FieldConflict, FieldDoc, File, SecretFile, Section

NEUTRON = "neutron"
VERIFIED = "verify-full"
"""Mode of TLS in which PostgreSQL's client checks the certificate and its name."""
_POSTGRESQL = "postgresql://"
_SCHEMES = ("sqlite:///", _POSTGRESQL)
_SECRETS = ("password", "sslpassword")


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
    ca_file: Annotated[
        File | None,
        FieldDoc(
            "CA certificates (PEM) for PostgreSQL's certificate; `null` for those that the system trusts. On another "
            "machine PostgreSQL is spoken to over TLS only, and its certificate must name the host of `database`."
        ),
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
        elif self.database is not None and _holds_password(self.database):
            yield FieldConflict(("database", "password_file"), "holds a password: put it into inventory.password_file")
        for field, asks in (("password_file", "asks for a password"), ("ca_file", "has a certificate")):
            if getattr(self, field) is not None and not (self.database or "").startswith(_POSTGRESQL):
                yield FieldConflict((field, "database"), f"has no effect: only PostgreSQL {asks}")
        yield from self._encryption_conflicts()

    def _encryption_conflicts(self) -> Iterator[FieldConflict]:
        database = self.database or ""
        options = database_options(database)
        mode = options.get("sslmode", VERIFIED)
        if database.startswith(_POSTGRESQL) and mode != VERIFIED and not stays_here(database):
            sentence = f"would trust whoever answers for the database (sslmode={mode}): leave sslmode out, or write "
            yield FieldConflict(("database",), f"{sentence}sslmode={VERIFIED}")
        if self.ca_file is not None and "sslrootcert" in options:
            yield FieldConflict(("ca_file", "database"), "has no effect beside sslrootcert: leave that out of the URL")


def database_options(database: str) -> dict[str, str]:
    """Return the options in the URL of a database; of one that is given twice, the last."""
    return dict(parse_qsl(database.partition("?")[2], keep_blank_values=True))


def stays_here(database: str) -> bool:
    """Return whether the URL of a PostgreSQL shows that no traffic leaves the machine. A name may lead anywhere."""
    query = parse_qsl(database.partition("?")[2], keep_blank_values=True)
    place = database.partition("?")[0].partition("://")[2].partition("/")[0].rpartition("@")[2]
    given = [place, *(value for name, value in query if name in ("host", "hostaddr"))]
    hosts = [unquote(one) for one in ",".join(given).split(",") if one]
    return bool(hosts) and all(one.startswith(("/", "@")) or _is_loopback(one) for one in hosts)


def _is_loopback(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host
    name = name if name.count(":") != 1 else name.partition(":")[0]
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _holds_password(database: str) -> bool:
    before, at, _ = database.partition("://")[2].partition("@")
    return (bool(at) and ":" in before) or any(database_options(database).get(one) for one in _SECRETS)
