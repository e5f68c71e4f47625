"""Neutron's tables in SQLite, with Holdfast's beside them: for tests and benchmarks that need no Neutron.

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

from holdfast.openstack import tables as t

_NEUTRON = [each for each in vars(t).values() if isinstance(each, Table) and not each.name.startswith("holdfast_")]
_MIRROR = (
    "CREATE TABLE holdfast_mirror (key BLOB PRIMARY KEY, resource TEXT NOT NULL, revision INTEGER NOT NULL, "
    "gone_at DATETIME, port_id TEXT REFERENCES ports (id) ON DELETE SET NULL, "
    "group_id TEXT REFERENCES securitygroups (id) ON DELETE SET NULL, "
    "subnet_id TEXT REFERENCES subnets (id) ON DELETE SET NULL)"
)


class NeutronDatabase:
    """The tables, and a few rows of Neutron in one call each. Ids may be given; otherwise they are new."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._numbers = itertools.count(1)
        event.listen(engine, "connect", _set_up)
        with engine.begin() as connection:
            for table in _NEUTRON:
                connection.execute(text(_ddl(table)))
            connection.execute(text(_MIRROR))
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


def _set_up(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = OFF")
