"""Mirror rows: the database's own record of what the store holds, and so the witness of every delete.

The leader writes a row before it creates the key in the store: a resource without a key needs no witness. The row
refers to its port, group or subnet. Whoever deletes that (Neutron, a purge, raw SQL), the foreign key becomes NULL with
it. A delete through Neutron's API writes the rows that are missing itself: those of keys that another controller wrote
and no resync has recorded yet. A key whose resource exists is judged by that resource: one that it no longer has,
because it is bound elsewhere or not at all, was given up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select, update
from sqlalchemy.dialects import mysql, sqlite

from holdfast.inventory.api import Witness
from holdfast.inventory.sql.objects import batches
from holdfast.model.base.region import Region
from holdfast.openstack import read
from holdfast.openstack.objects import GROUP, PORT, SUBNET, newest_changes, resources_at
from holdfast.openstack.rows import PortRow, SecurityGroupRow, SubnetRow
from holdfast.openstack.tables import GROUPS, MIRROR, OUTBOX, PORTS, SUBNETS
from holdfast.openstack.translate.keys import NeutronResource, keys_of, wanted_now
from holdfast.openstack.translate.settings import TranslationSettings

_OWNERS = {PORT: (PORTS, "port_id"), GROUP: (GROUPS, "group_id"), SUBNET: (SUBNETS, "subnet_id")}
_GONE = and_(MIRROR.c.port_id.is_(None), MIRROR.c.group_id.is_(None), MIRROR.c.subnet_id.is_(None))
_CHANGE = select(func.max(OUTBOX.c.id)).where(OUTBOX.c.resource == MIRROR.c.resource).scalar_subquery()
"""The newest change of a row's resource that is still in the outbox."""
_WHO = "neutron"


def expect(connection: Connection, keys: Collection[bytes], revision: int, settings: TranslationSettings) -> None:
    """Record keys that the store will hold. A resource that is gone already is its own witness."""
    resources = resources_at(keys, settings)
    present = _present(connection, resources.values())
    rows = []
    for key, resource in resources.items():
        if resource.type in _OWNERS:
            owner = _OWNERS[resource.type][1]
            rows.append({**_row(key, resource, revision), owner: resource.id if resource in present else None})
    if rows:
        connection.execute(_upsert(connection), rows)


def expect_delete(connection: Connection, resource: NeutronResource, revision: int, region: Region) -> None:
    """Record the keys of a resource that this transaction deletes. The resource is locked before its rows, in the order
    of `expect` and of the delete itself, so that the three cannot deadlock."""
    table = _OWNERS[resource.type][0]
    connection.execute(select(table.c.id).where(table.c.id == resource.id).with_for_update()).all()
    owners: Sequence[PortRow | SecurityGroupRow | SubnetRow]
    match resource.type:
        case "port":
            owners = read.binding_ports(connection, {resource.id})
        case "security-group":
            owners = [SecurityGroupRow(id=resource.id)]
        case _:
            owners = [SubnetRow(id=resource.id, network_id="", cidr="")]
    rows = [_row(each.key, resource, revision) for owner in owners for each in keys_of(owner, region)]
    if rows:
        connection.execute(_upsert(connection), rows)


def _row(key: bytes, resource: NeutronResource, revision: int) -> dict[str, Any]:
    """A row whose resource is gone."""
    row = {"key": key, "resource": resource.id, "revision": revision, "gone_at": None}
    return row | dict.fromkeys(("port_id", "group_id", "subnet_id"))


def _upsert(connection: Connection) -> Any:
    """Insert rows, or replace those with the same key: on MariaDB, and on SQLite in tests."""
    named = ("resource", "revision", "gone_at", "port_id", "group_id", "subnet_id")
    if connection.dialect.name == "sqlite":
        insert = sqlite.insert(MIRROR)
        return insert.on_conflict_do_update(["key"], set_={each: insert.excluded[each] for each in named})
    query = mysql.insert(MIRROR)
    return query.on_duplicate_key_update({each: query.inserted[each] for each in named})


def _present(connection: Connection, resources: Collection[NeutronResource]) -> set[NeutronResource]:
    found: set[NeutronResource] = set()
    for kind, (table, _) in _OWNERS.items():
        for batch in batches(sorted({each.id for each in resources if each.type == kind})):
            ids = connection.execute(select(table.c.id).where(table.c.id.in_(batch)).with_for_update(read=True))
            found |= {NeutronResource(kind, one) for one in ids.scalars()}  # type: ignore[arg-type]
    return found


def witnesses(
    connection: Connection, keys: Collection[bytes], settings: TranslationSettings
) -> Mapping[bytes, Witness]:
    """The witnesses of deletes among these keys."""
    resources = resources_at(keys, settings)
    changed = newest_changes(connection, {each.id for each in resources.values()})
    found = _judged_by_resource(connection, resources, changed, settings)
    left = sorted(resources.keys() - found.keys())
    for batch in batches(left):
        query = select(MIRROR.c.key, MIRROR.c.resource, MIRROR.c.revision, MIRROR.c.gone_at)
        for row in connection.execute(query.where(MIRROR.c.key.in_(batch), _GONE)):
            found[row.key] = Witness(max(row.revision, changed[row.resource]), _WHO, None, row.gone_at)
    return {key: witness for key, witness in found.items() if witness is not None}


def _judged_by_resource(
    connection: Connection,
    resources: Mapping[bytes, NeutronResource],
    changed: Mapping[str, int],
    settings: TranslationSettings,
) -> dict[bytes, Witness | None]:
    """Keys whose resource exists; None for a key that it has. `changed` has the newest change of each resource."""
    found: dict[bytes, Witness | None] = {}
    region = settings.region
    ports = {port.id: port for port in read.binding_ports(connection, _ids(resources, PORT))}
    subnets = {subnet.id: subnet for subnet in read.subnets(connection, _ids(resources, SUBNET))}
    groups = {group.id for group in read.groups(connection, _ids(resources, GROUP), rules=False)}
    for key, resource in resources.items():
        row: PortRow | SubnetRow | None = ports.get(resource.id) or subnets.get(resource.id)
        if resource.type == GROUP and resource.id in groups:
            found[key] = None
        elif isinstance(row, PortRow):
            moved_to = wanted_now(key, row, region)
            found[key] = None if moved_to == key else Witness(changed[resource.id], _WHO, moved_to)
        elif isinstance(row, SubnetRow):
            has = any(each.key == key for each in keys_of(row, region))
            found[key] = None if has else Witness(changed[resource.id], _WHO)
    return found


def void(connection: Connection, upto: int) -> None:
    """Forget the deletes that were witnessed up to a revision. A row whose resource exists witnesses its later delete
    all the same, however old it is."""
    known = select(MIRROR.c.key).where(_GONE, MIRROR.c.revision <= upto, func.coalesce(_CHANGE, 0) <= upto)
    for batch in batches(sorted(connection.execute(known).scalars())):
        connection.execute(delete(MIRROR).where(MIRROR.c.key.in_(batch)))


def _ids(resources: Mapping[bytes, NeutronResource], kind: str) -> set[str]:
    return {each.id for each in resources.values() if each.type == kind}


def prune(connection: Connection, now: datetime, before: datetime, held: Collection[bytes]) -> int:
    """Note when rows were first seen gone, and delete those that were gone before a time, unless their key is held or
    in the outbox. Returns how many it deleted."""
    connection.execute(update(MIRROR).where(_GONE, MIRROR.c.gone_at.is_(None)).values(gone_at=now.replace(tzinfo=None)))
    unsettled = select(OUTBOX.c.resource).distinct()
    outdated = select(MIRROR.c.key).where(
        _GONE, MIRROR.c.gone_at < before.replace(tzinfo=None), MIRROR.c.resource.not_in(unsettled)
    )
    doomed = set(connection.execute(outdated).scalars()) - set(held)
    for batch in batches(sorted(doomed)):
        connection.execute(delete(MIRROR).where(MIRROR.c.key.in_(batch)))
    return len(doomed)


def gone(connection: Connection, resource: str) -> dict[bytes, Witness]:
    """The keys of a resource that was deleted, newest first."""
    query = select(MIRROR.c.key, MIRROR.c.revision, MIRROR.c.gone_at).where(MIRROR.c.resource == resource, _GONE)
    rows = connection.execute(query.order_by(MIRROR.c.revision.desc(), MIRROR.c.key))
    return {row.key: Witness(row.revision, _WHO, None, row.gone_at) for row in rows}


def missing(connection: Connection, keys: Collection[bytes], settings: TranslationSettings) -> set[bytes]:
    """Those of these keys that have no row, or one whose foreign key is gone. Keys of the fleet have none."""
    present = set(connection.execute(select(MIRROR.c.key).where(~_GONE)).scalars())
    resources = resources_at(set(keys) - present, settings)
    return {key for key, resource in resources.items() if resource.type in _OWNERS}
