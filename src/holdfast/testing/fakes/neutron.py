"""Neutron's tables in SQLite or MariaDB, with Holdfast's beside them: for tests and benchmarks that need no Neutron.

    database = NeutronDatabase(open_engine(database_url("sqlite:////tmp/x.db")))
    network = database.add("networks", id="n1", name="private")

Only the columns that the reader selects exist. Foreign keys of the mirror are real, as in the migrations, so that the
database witnesses deletes; all other rules of Neutron are not here: `make test-openstack` runs the real one.
"""

from __future__ import annotations

import itertools
import uuid
from typing import Any

from sqlalchemy import Engine, Table, delete, event, insert, text, update

from holdfast.inventory.sql.engine import is_mysql
from holdfast.openstack import tables as t

_NEUTRON = [each for each in vars(t).values() if isinstance(each, Table) and not each.name.startswith("holdfast_")]
_MIRROR = (
    "CREATE TABLE holdfast_mirror ({key} PRIMARY KEY, resource VARCHAR(64) NOT NULL, revision BIGINT NOT NULL, "
    "gone_at DATETIME, port_id {id} REFERENCES ports (id) ON DELETE SET NULL, "
    "group_id {id} REFERENCES securitygroups (id) ON DELETE SET NULL, "
    "subnet_id {id} REFERENCES subnets (id) ON DELETE SET NULL)"
)
_ID = "VARCHAR(36)"
_NUMBERS = {"standard_attr_id", "revision_number", "ip_version", "order", "port_range_min", "port_range_max"}
_NUMBERS |= {"max_kbps", "max_burst_kbps", "max_kpps", "max_burst_kpps"}
_NUMBERS |= {"admin_state_up", "port_security_enabled", "enable_dhcp", "stateful"}


class NeutronDatabase:
    """The tables, and a few rows of Neutron in one call each. Ids may be given; otherwise they are new."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._numbers = itertools.count(1)
        is_mariadb = is_mysql(engine)
        if not is_mariadb:
            event.listen(engine, "connect", _set_up)
        mirror = _MIRROR.format(key="`key` VARBINARY(767)" if is_mariadb else "key BLOB", id=_ID)
        with engine.begin() as connection:
            for table in _NEUTRON:
                connection.execute(text(_mariadb_ddl(table) if is_mariadb else _ddl(table)))
            connection.execute(text(mirror))
        t.METADATA.create_all(engine)
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE holdfast_identity ADD COLUMN settled INTEGER NOT NULL DEFAULT 0"))

    def insert(self, table: Table, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(insert(table).values(**values))

    def add(self, table: Table, **values: Any) -> str:
        """Insert a row that has an id and standard attributes. Returns the id."""
        row = {"id": str(uuid.uuid4()), "project_id": "p1", **values, "standard_attr_id": next(self._numbers)}
        known = {column.name for column in table.columns}
        self.insert(t.STANDARD, id=row["standard_attr_id"], resource_type=table.name, revision_number=1)
        self.insert(table, **{name: value for name, value in row.items() if name in known})
        return str(row["id"])

    def network(self, **values: Any) -> str:
        return self.add(t.NETWORKS, **{"name": "private", **values})

    def subnet(self, network: str, cidr: str = "10.28.0.0/24", **values: Any) -> str:
        row = {"network_id": network, "cidr": cidr, "ip_version": 4, "gateway_ip": "10.28.0.1", "enable_dhcp": True}
        return self.add(t.SUBNETS, **{**row, **values})

    def group(self, **values: Any) -> str:
        return self.add(t.GROUPS, **{"name": "default", "stateful": True, **values})

    def port(self, network: str, subnet: str, address: str, *, host: str = "compute-1", group: str = "") -> str:
        """A bound port of a workload, with one address."""
        row = {"device_owner": "compute:nova", "device_id": str(uuid.uuid4()), "mac_address": "fa:16:3e:00:00:01"}
        port = self.add(t.PORTS, network_id=network, status="DOWN", admin_state_up=True, **row)
        self.insert(
            t.BINDINGS, port_id=port, host=host, vif_type="tap", status="ACTIVE", profile="", vnic_type="normal"
        )
        self.insert(t.FIXED_IPS, port_id=port, ip_address=address, subnet_id=subnet)
        if group:
            self.insert(t.PORT_GROUPS, port_id=port, security_group_id=group)
        return port

    def change(self, table: Table, row: str | int, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(update(table).where(table.c.id == row).values(**values))

    def remove(self, table: Table, row: str) -> None:
        """Delete a row behind Neutron's back."""
        with self.engine.begin() as connection:
            connection.execute(delete(table).where(table.c.id == row))


def _ddl(table: Table) -> str:
    columns = (f'"{each.name}"{" PRIMARY KEY" if each.name == "id" else ""}' for each in table.columns)
    return f"CREATE TABLE {table.name} ({', '.join(columns)})"


def _mariadb_ddl(table: Table) -> str:
    """With types, and with an index on each column that names a row: what Neutron's own tables have."""
    columns = [f"`{each.name}` {_type(table, each.name)}" for each in table.columns]
    keys = [f"PRIMARY KEY (`{each.name}`)" for each in table.columns if each.name == "id"]
    keys += [f"KEY (`{each.name}`)" for each in table.columns if each.name.endswith("_id")]
    return f"CREATE TABLE {table.name} ({', '.join(columns + keys)}) CHARACTER SET utf8mb3"


def _type(table: Table, column: str) -> str:
    if column in _NUMBERS or (table is t.STANDARD and column == "id"):
        return "BIGINT"
    if column.endswith(("_at", "_timestamp")):
        return "DATETIME"
    return _ID if column == "id" or column.endswith("_id") else "VARCHAR(255)"


def _set_up(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = OFF")
