"""Objects of the store from Neutron's database: which keys there are, and the objects at some of them.

Reading is by resource: a port has up to three keys, a group and a subnet have one. A row that the translator refuses
is wanted all the same (rule 9): its keys come with an empty document, and what the store has at them stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace
from sqlalchemy import Connection, func, select

from holdfast.inventory.api import Row
from holdfast.inventory.sql.objects import batches
from holdfast.model.base.bad import Bad
from holdfast.openstack import read
from holdfast.openstack import tables as t
from holdfast.openstack.outbox import Changed
from holdfast.openstack.projects import ProjectNames
from holdfast.openstack.rows import PortRow, ProjectRow, SecurityGroupRow, SubnetRow
from holdfast.openstack.scope import CheckScope
from holdfast.openstack.translate.endpoint import translate_port
from holdfast.openstack.translate.fleet import fleet_objects
from holdfast.openstack.translate.keys import NeutronResource, keys_of, resource_at
from holdfast.openstack.translate.outcome import Translation
from holdfast.openstack.translate.policy import translate_group
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.openstack.translate.subnet import translate_subnet

log = structlog.get_logger(__name__)

Change = tuple[Changed, str]
"""A kind of change, and the id of what changed."""
PORT: Final = "port"
GROUP: Final = "security-group"
SUBNET: Final = "subnet"
FLEET: Final = "fleet"


class WantedKey(NamedTuple):
    """A key that the store should have, and the resource that it comes from. Ordered as the store orders keys."""

    key: bytes
    resource: NeutronResource


class NeutronObjects:
    """Reads through a connection that the caller has opened, so that a snapshot and a single look share the code."""

    def __init__(self, settings: TranslationSettings, projects: ProjectNames | None = None) -> None:
        """Without `projects` no project has a name."""
        self.settings = settings
        self.region = settings.region
        self.projects = projects
        self.log_refused = True
        """False where the caller reports them itself, as a command does."""
        self.refused: set[Bad] = set()
        """Rows, and parts of rows, that had no form in Calico since this process began."""

    def wanted_keys(self, connection: Connection) -> list[WantedKey]:
        """All keys that the store should have, sorted."""
        rows: Iterable[PortRow | SecurityGroupRow | SubnetRow] = (
            *read.binding_ports(connection),
            *read.groups(connection, rules=False),
            *read.subnets(connection),
        )
        found = [WantedKey(each.key, _resource(row)) for row in rows for each in keys_of(row, self.region)]
        found += [WantedKey(each.key, NeutronResource(FLEET, "")) for each in fleet_objects(self.region, "")]
        return sorted(found)

    def read(self, connection: Connection, resources: Collection[NeutronResource], fleet: str | None) -> list[Row]:
        """The objects of these resources; `fleet` is the id of the fleet, which a new cluster gets as its own. Before
        the fleet has one, a cluster that exists is right all the same. The revision of an object is that of the last
        change that waits in the outbox: Neutron's own tell nothing about what was edited since a verdict (C40)."""
        by_type = _by_type(resources)
        changed = newest_changes(connection, {each.id for each in resources})
        found: list[Row] = []
        if FLEET in by_type:
            found += [Row(each.key, each.doc, 0) for each in fleet_objects(self.region, fleet or "")]
        subnets = read.subnets(connection, by_type[SUBNET]) if by_type[SUBNET] else []
        for subnet in subnets:
            found += self._rows(subnet, translate_subnet(subnet, self.settings), changed[subnet.id])
        groups = read.groups(connection, by_type[GROUP]) if by_type[GROUP] else []
        shared = read.rows_of_groups(connection, groups)
        for group in groups:
            found += self._rows(group, translate_group(group, shared, self.settings), changed[group.id])
        ports = read.ports(connection, by_type[PORT]) if by_type[PORT] else []
        shared = replace(read.rows_of_ports(connection, ports), projects=self._projects_of(ports))
        for port in ports:
            found += self._rows(port, translate_port(port, shared, self.settings), changed[port.id])
        return found

    def _projects_of(self, ports: Iterable[PortRow]) -> Mapping[str, ProjectRow]:
        ids = {port.project_id for port in ports if port.project_id is not None}
        return self.projects.of(ids) if self.projects is not None and ids else {}

    def _rows(
        self, row: PortRow | SecurityGroupRow | SubnetRow, translation: Translation, revision: int
    ) -> Iterator[Row]:
        for bad in translation.bad:
            if bad not in self.refused:  # once per process
                self.refused.add(bad)
                if self.log_refused:
                    log.warning("row of Neutron has no form in Calico", error=str(bad))
        for each in translation.objects:
            yield Row(each.key, each.doc, revision)
        if translation.bad and not translation.objects:
            for wanted in keys_of(row, self.region):
                yield Row(wanted.key, b"", revision)

    def changed_keys(self, connection: Connection, changes: Mapping[Changed, set[str]]) -> dict[Change, set[bytes]]:
        """The keys that changes are about, now and before."""
        found: dict[Change, set[bytes]] = defaultdict(set)
        ports = self._ports_of(connection, changes)
        rows = {port.id: port for port in read.binding_ports(connection, set(ports))} if ports else {}
        before = _mirrored(connection, {*ports, *(one for ids in changes.values() for one in ids)})
        for port, causes in ports.items():
            keys = {each.key for each in keys_of(rows[port], self.region)} if port in rows else set()
            for cause in causes:
                found[cause] |= keys | before[port]
        for group in changes.get(Changed.GROUP, set()) | changes.get(Changed.RULES, set()):
            keys = {each.key for each in keys_of(SecurityGroupRow(id=group), self.region)} | before[group]
            found[Changed.GROUP, group] |= keys
            found[Changed.RULES, group] |= keys
        for subnet in changes.get(Changed.SUBNET, ()):
            row = SubnetRow(id=subnet, network_id="", cidr="")
            found[Changed.SUBNET, subnet] |= {each.key for each in keys_of(row, self.region)} | before[subnet]
        return found

    def _ports_of(self, connection: Connection, changes: Mapping[Changed, set[str]]) -> dict[str, set[Change]]:
        """The ports that changes concern, and the changes that concern them."""
        found: dict[str, set[Change]] = defaultdict(set)
        for port in changes.get(Changed.PORT, ()):
            found[port].add((Changed.PORT, port))
        for kind, member, owner in _PORTS_OF:
            for batch in batches(sorted(changes.get(kind, ()))):
                for row in connection.execute(select(member, owner).where(owner.in_(batch))):
                    found[row[0]].add((kind, row[1]))
        policies = sorted(changes.get(Changed.QOS, ()))
        network = t.NETWORK_QOS.c
        for batch in batches(policies):
            query = select(t.PORTS.c.id, network.policy_id).join(
                t.NETWORK_QOS, network.network_id == t.PORTS.c.network_id
            )
            for row in connection.execute(query.where(network.policy_id.in_(batch))):
                found[row[0]].add((Changed.QOS, row[1]))
        return found


_PORTS_OF = (
    (Changed.NETWORK, t.PORTS.c.id, t.PORTS.c.network_id),
    (Changed.SUBNET, t.FIXED_IPS.c.port_id, t.FIXED_IPS.c.subnet_id),
    (Changed.GROUP, t.PORT_GROUPS.c.port_id, t.PORT_GROUPS.c.security_group_id),
    (Changed.QOS, t.PORT_QOS.c.port_id, t.PORT_QOS.c.policy_id),
)


def scope(
    connection: Connection, *, port: str = "", group: str = "", subnet: str = "", network: str = ""
) -> CheckScope:
    """The scope of one port, group, subnet or network; without any, everything."""
    ports: set[str] = {port} if port else set()
    others: set[NeutronResource] = set()
    cidr = ""
    if group:
        others.add(NeutronResource(GROUP, group))
        ports |= read.ids_where(connection, t.PORT_GROUPS.c.port_id, t.PORT_GROUPS.c.security_group_id, group)
    elif subnet:
        others.add(NeutronResource(SUBNET, subnet))
        ports |= read.ids_where(connection, t.FIXED_IPS.c.port_id, t.FIXED_IPS.c.subnet_id, subnet)
        for row in read.subnets(connection, {subnet}):
            network, cidr = row.network_id, row.cidr
    elif network:
        subnets = read.ids_where(connection, t.SUBNETS.c.id, t.SUBNETS.c.network_id, network)
        others |= {NeutronResource(SUBNET, one) for one in subnets}
        ports |= read.ids_where(connection, t.PORTS.c.id, t.PORTS.c.network_id, network)
    resources = frozenset(others | {NeutronResource(PORT, one) for one in ports})
    return CheckScope(resources=resources, group=group, network=network, cidr=cidr)


def newest_changes(connection: Connection, resources: Collection[str]) -> defaultdict[str, int]:
    """The newest waiting change of each resource; 0 for one without."""
    found: defaultdict[str, int] = defaultdict(int)
    columns = t.OUTBOX.c
    query = select(columns.resource, func.max(columns.id)).group_by(columns.resource)
    for batch in batches(sorted(resources)):
        rows = connection.execute(query.where(columns.resource.in_(batch)))
        found.update({row[0]: row[1] for row in rows})
    return found


def resources_at(keys: Iterable[bytes], settings: TranslationSettings) -> dict[bytes, NeutronResource]:
    """The resources that keys belong to; keys of others are left out."""
    found = ((key, resource_at(key, settings.region)) for key in keys)
    return {key: resource for key, resource in found if not isinstance(resource, Bad)}


def _resource(row: PortRow | SecurityGroupRow | SubnetRow) -> NeutronResource:
    match row:
        case PortRow():
            return NeutronResource(PORT, row.id)
        case SecurityGroupRow():
            return NeutronResource(GROUP, row.id)
        case SubnetRow():
            return NeutronResource(SUBNET, row.id)


def _by_type(resources: Collection[NeutronResource]) -> defaultdict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for resource in resources:
        found[resource.type].add(resource.id)
    return found


def _mirrored(connection: Connection, resources: Collection[str]) -> defaultdict[str, set[bytes]]:
    found: defaultdict[str, set[bytes]] = defaultdict(set)
    for batch in batches(sorted(resources)):
        for row in connection.execute(
            select(t.MIRROR.c.resource, t.MIRROR.c.key).where(t.MIRROR.c.resource.in_(batch))
        ):
            found[row[0]].add(row[1])
    return found
