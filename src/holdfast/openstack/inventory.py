"""`NeutronInventory`: the syncer's side of Neutron, on Neutron's own database.

Desired state is read from Neutron's tables and translated; nothing of it is stored twice. The outbox has ids of
resources, which are expanded to keys when they are read. Revisions are ids of outbox rows, as in every inventory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, select, update

from holdfast.inventory.api import Fence, OutboxRow, Row, Witness
from holdfast.inventory.changes import PastChange
from holdfast.inventory.sql.control import SqlControl
from holdfast.inventory.sql.engine import is_mysql, reading
from holdfast.inventory.sql.fence import fenced
from holdfast.inventory.sql.objects import batches
from holdfast.inventory.sql.snapshot import OpenTransaction
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.control.mark import Mark
from holdfast.openstack import mirror, objects, read
from holdfast.openstack.objects import NeutronObjects, WantedKey, resources_at
from holdfast.openstack.outbox import Changed
from holdfast.openstack.projects import ProjectNames
from holdfast.openstack.scope import CheckScope
from holdfast.openstack.tables import CONTROL, OUTBOX, SETTLED
from holdfast.openstack.translate.keys import KINDS, keys_of, named_key, named_resource
from holdfast.openstack.translate.settings import TranslationSettings


class NeutronSnapshot(OpenTransaction):
    """All objects at one moment: keys are sorted in memory, objects are read and translated page by page."""

    def __init__(self, engine: Engine, objects: NeutronObjects) -> None:
        super().__init__()
        self._objects = objects
        with self.closed_on_error():
            isolation: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if is_mysql(engine) else {}
            self._connection = connection = self.begin(engine, **isolation)
            self._revision = _newest(connection)
            self._fleet = connection.execute(select(CONTROL.identity.c.fleet)).scalar_one_or_none()
            self._keys: Sequence[WantedKey] = objects.wanted_keys(connection)

    def read(self, after: bytes | None, most: int) -> Sequence[Row]:
        start = 0 if after is None else bisect_right(self._keys, after, key=lambda one: one.key)
        found: list[Row] = []
        with self.closed_on_error():
            while start < len(self._keys) and len(found) < most:
                page = self._keys[start : start + most - len(found)]
                start += len(page)
                wanted = {one.key for one in page}
                rows = self._objects.read(self._connection, {one.resource for one in page}, self._fleet)
                found += sorted(row for row in rows if row.key in wanted)
        return found

    def revision(self) -> int:
        return self._revision


class NeutronInventory(SqlControl):
    """The `Inventory` of OpenStack."""

    def __init__(self, engine: Engine, settings: TranslationSettings, projects: ProjectNames | None = None) -> None:
        super().__init__(engine, CONTROL)
        self._settings = settings
        self._objects = NeutronObjects(settings, projects)

    @property
    def kinds(self) -> Sequence[Kind[Any, Any]]:
        return KINDS

    @property
    def is_editable(self) -> bool:
        return False

    def snapshot(self) -> NeutronSnapshot:
        if self._objects.projects is not None:
            self._objects.projects.refresh()
        return NeutronSnapshot(self.engine, self._objects)

    def read_keys(self, keys: Collection[bytes]) -> Sequence[Row]:
        wanted = resources_at(keys, self._settings)
        fleet = self.fleet()
        with reading(self.engine) as connection:
            rows = self._objects.read(connection, set(wanted.values()), fleet)
        return sorted(row for row in rows if row.key in wanted)

    def find(self, kind: Kind[Any, Any], name: str) -> Row | None:
        return next(iter(self.find_all(kind, [name])), None)

    def find_all(self, kind: Kind[Any, Any], names: Collection[str]) -> Sequence[Row]:
        """Objects of ports by the name that stays when they move; a port that migrates is at its source. The id of the
        port, group or subnet alone is a name, too."""
        resources = {found.id for name in names if (found := named_resource(kind, name)) is not None}
        if kind is not ENDPOINT and kind is not MIGRATION:
            keys = [key for name in names if (key := named_key(kind, name, self._settings.region)) is not None]
            return self.read_keys(keys)
        with reading(self.engine) as connection:
            ports = read.binding_ports(connection, resources)
        each_port = ([each.key for each in keys_of(row, self._settings.region) if each.kind is kind] for row in ports)
        return self.read_keys({each[0] for each in each_port if each})

    def history(self, kind: Kind[Any, Any], name: str, last: int) -> Sequence[PastChange]:
        """The deletes that the mirror has recorded: Neutron keeps no history of its own."""
        resource, prefix = named_resource(kind, name), kind.prefix(self._settings.region)
        if resource is None:
            return ()
        with reading(self.engine) as connection:
            gone = mirror.gone(connection, resource.id)
        return [
            PastChange(one.revision, key, b"", None, one.who, "", one.at or datetime.now(UTC))
            for key, one in gone.items()
            if key.startswith(prefix)
        ][:last]

    def networks(self) -> Mapping[str, int]:
        counts: defaultdict[str, int] = defaultdict(int)
        with reading(self.engine) as connection:
            for port in read.binding_ports(connection):
                counts[port.network_id] += bool(keys_of(port, self._settings.region))
        return counts

    def outbox(self, most: int, after: int = 0) -> Sequence[OutboxRow]:
        with reading(self.engine) as connection:
            query = select(OUTBOX.c.id, OUTBOX.c.kind, OUTBOX.c.resource).where(OUTBOX.c.id > after)
            rows = connection.execute(query.order_by(OUTBOX.c.id).limit(most)).all()
            changes: defaultdict[Changed, set[str]] = defaultdict(set)
            for row in rows:
                changes[Changed(row.kind)].add(row.resource)
            keys = self._objects.changed_keys(connection, changes) if rows else {}
        return [_outbox_row(row.id, sorted(keys.get((Changed(row.kind), row.resource), ()))) for row in rows]

    def settle(self, fence: Fence, ids: Sequence[int], mark: Mark | None = None) -> None:
        with fenced(self.engine, fence, self.tables.fence) as connection:
            if mark is not None:
                self.note_stored(connection, fence, mark)
            if not ids:
                return
            for batch in batches(ids):
                connection.execute(delete(OUTBOX).where(OUTBOX.c.id.in_(batch)))
            connection.execute(update(SETTLED).where(SETTLED.c.settled < max(ids)).values(settled=max(ids)))

    def expect(self, fence: Fence, keys: Collection[bytes]) -> None:
        with fenced(self.engine, fence, self.tables.fence) as connection:
            mirror.expect(connection, keys, _newest(connection), self._settings)

    def witness(self, keys: Collection[bytes]) -> Mapping[bytes, Witness]:
        with reading(self.engine) as connection:
            return mirror.witnesses(connection, keys, self._settings)

    def void_witnesses(self, fence: Fence, upto: int | None = None) -> None:
        with fenced(self.engine, fence, self.tables.fence) as connection:
            self.void(connection, _newest(connection) if upto is None else upto)

    def void(self, connection: Connection, upto: int) -> None:
        mirror.void(connection, upto)

    def revision(self) -> int:
        with reading(self.engine) as connection:
            return _newest(connection)

    def scope(self, *, port: str = "", group: str = "", subnet: str = "", network: str = "") -> CheckScope:
        """The scope of a comparison, with the ports and subnets that belong to it now."""
        with reading(self.engine) as connection:
            return objects.scope(connection, port=port, group=group, subnet=subnet, network=network)

    def address_owners(self, addresses: Collection[str]) -> Mapping[str, str]:
        """The ports that have these addresses now."""
        with reading(self.engine) as connection:
            return read.address_owners(connection, addresses)

    def report_refused(self) -> Collection[Bad]:
        """Rows of Neutron, and parts of rows, that are read from now on and have no form in Calico. They are no longer
        logged: the caller reports them."""
        self._objects.log_refused = False
        return self._objects.refused

    def unmirrored(self) -> Collection[bytes]:
        """Wanted keys whose delete nothing would witness yet: no resync has recorded them."""
        with reading(self.engine) as connection:
            return mirror.missing(
                connection, [one.key for one in self._objects.wanted_keys(connection)], self._settings
            )

    def prune_history(self, fence: Fence, before: datetime, held: Collection[bytes] = ()) -> Iterator[int]:
        """After a resync every wanted key has a mirror row, also one that another controller wrote."""
        for batch in batches(sorted(self.unmirrored())):
            self.expect(fence, batch)
            yield 0
        with fenced(self.engine, fence, self.tables.fence) as connection:
            deleted = mirror.prune(connection, datetime.now(UTC), before, held)
        yield deleted


def _outbox_row(number: int, keys: Sequence[bytes]) -> OutboxRow:
    return OutboxRow(number, keys[0] if keys else b"", None, tuple(keys[1:]))


def _newest(connection: Connection) -> int:
    waiting: int | None = connection.execute(select(func.max(OUTBOX.c.id))).scalar_one()
    settled: int | None = connection.execute(select(SETTLED.c.settled)).scalar_one_or_none()
    return max(waiting or 0, settled or 0)
