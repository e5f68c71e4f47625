"""`NeutronObserved`: the status workers' side of Neutron.

The last observation of each agent and endpoint is a row of ours, and what it means for Neutron is written into Neutron.
Neutron changes the status of ports itself (a binding that is made again sets DOWN, C31), so endpoints are read with the
status that their port has now, and a difference is written again. Agents are alive in Neutron by the age of their
heartbeat: down sets it back, and hosts whose loss is held keep a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec
import structlog
from sqlalchemy import Connection, Engine, func, select, update

from holdfast.inventory.api import ChangedKeys, Fence, ObservedRow
from holdfast.inventory.sql.engine import reading
from holdfast.inventory.sql.fence import fenced
from holdfast.inventory.sql.objects import batches
from holdfast.inventory.sql.observed import ObservedRows
from holdfast.model.base import codec
from holdfast.model.base.bad import Bad
from holdfast.model.base.name import NameRefused
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS
from holdfast.model.calico.host import HOST
from holdfast.model.fleet import observed
from holdfast.model.fleet.observed import AgentSeen, EndpointSeen, ObservedState
from holdfast.openstack import read
from holdfast.openstack.agent_type import AGENT_TYPE
from holdfast.openstack.rows import PortRow
from holdfast.openstack.tables import AGENTS, CONTROL, PORTS, STANDARD
from holdfast.openstack.translate.keys import keys_of
from holdfast.reconcile import Away

log = structlog.get_logger(__name__)

_STATES = {state.value: state for state in ObservedState}
_agent = msgspec.json.Decoder(AgentSeen)
_endpoint = msgspec.json.Decoder(EndpointSeen)


class Plugin(Protocol):
    """The calls into Neutron."""

    @property
    def agent_down_time(self) -> int: ...
    def register_agent(self, host: str) -> None: ...
    def set_port_status(self, port: str, host: str, status: str) -> bool: ...


class _Seen(NamedTuple):
    """A port as `changed_since` saw it last: its revision, and the key of its endpoint."""

    revision: int
    key: bytes


class NeutronObserved(ObservedRows):
    """The `Observed` of OpenStack. `plugin` loads Neutron at its first call."""

    def __init__(self, engine: Engine, region: Region, plugin: Callable[[], Plugin]) -> None:
        super().__init__(engine, CONTROL)
        self._region = region
        self._plugin = plugin
        self._known: dict[str, _Seen] = {}
        self._known_hosts: set[str] = set()
        self._wanted: Sequence[bytes] = ()

    def read(self, kind: str, prefix: bytes, after: bytes | None, most: int) -> Sequence[ObservedRow]:
        rows = super().read(kind, prefix, after, most)
        # A page may not shrink: a row that Neutron lacks is shown as one that cannot be right.
        with reading(self.engine) as connection:
            if kind == observed.ENDPOINT:
                return self._with_status(connection, rows)
            if kind == observed.AGENT:
                return self._registered(connection, rows)
        return rows

    @property
    def is_fenced(self) -> bool:
        return False  # calls into Neutron are transactions of their own

    def shared(self, kind: str) -> bool:
        return kind == observed.ENDPOINT

    def read_settled(self, fence: Fence, keys: Collection[bytes]) -> Sequence[ObservedRow]:
        rows = super().read_settled(fence, keys)
        mine = ENDPOINT_STATUS.prefix(self._region)
        if not any(row.key.startswith(mine) for row in rows):
            return rows
        with reading(self.engine) as connection:
            return self._with_status(connection, rows)

    def write(
        self, fence: Fence, kind: str, rows: Mapping[bytes, Sequence[bytes]], gone: Collection[bytes], at: datetime
    ) -> Mapping[bytes, str]:
        refused: dict[bytes, str] = {}
        if kind == observed.AGENT:
            agents = [(key, _agent.decode(doc)) for doc, keys in rows.items() for key in keys]
            refused = self._write_agents(fence, agents)
        elif kind == observed.ENDPOINT:
            for doc, keys in rows.items():
                refused |= self._write_endpoints(_endpoint.decode(doc), keys)
        super().write(fence, kind, without(rows, refused), gone, at)
        return refused

    def wanted(self, prefix: bytes, after: bytes | None, most: int) -> Sequence[bytes]:
        """Keys of endpoints at the host that their port is bound to; the target of a migration is not bound yet."""
        if after is None:
            with reading(self.engine) as connection:
                ports = read.binding_ports(connection)
            self._known = dict(self._seen(ports))
            self._wanted = sorted(seen.key for seen in self._known.values() if seen.key)
        return [key for key in self._wanted if after is None or key > after][:most]

    def hosts(self, region: str) -> Sequence[str]:
        with reading(self.engine) as connection:
            return sorted(_agent_hosts(connection))

    def newest(self) -> int:
        """A number that differs when a port or an agent has changed: no counter, but never the same by accident."""
        ports = select(func.count(), func.sum(STANDARD.c.revision_number), func.max(STANDARD.c.id))
        with reading(self.engine) as connection:
            row = connection.execute(ports.where(STANDARD.c.resource_type == "ports")).one()
            agents = connection.execute(select(func.count()).select_from(AGENTS)).scalar_one()
        return hash((*map(int, (each or 0 for each in row)), agents)) >> 2

    def changed_since(self, kind: str, revision: int) -> ChangedKeys:
        """Compare with what this process saw last: Neutron's revisions count per object."""
        newest = self.newest()
        if kind == HOST.name:
            return ChangedKeys(newest, *self._changed_hosts())
        with reading(self.engine) as connection:
            now = dict(self._seen(read.binding_ports(connection)))
        before, self._known = self._known, now
        present = {seen.key for port, seen in now.items() if seen.key and before.get(port) != seen}
        gone = {
            seen.key
            for port, seen in before.items()
            if seen.key and now.get(port, seen._replace(key=b"")).key != seen.key
        }
        return ChangedKeys(newest, present, gone - present)

    def _seen(self, ports: Sequence[PortRow]) -> Iterator[tuple[str, _Seen]]:
        for port in ports:
            keys = (each.key for each in keys_of(port, self._region) if each.kind is ENDPOINT)
            yield port.id, _Seen(port.revision, next(keys, b""))

    def _changed_hosts(self) -> tuple[Collection[bytes], Collection[bytes]]:
        with reading(self.engine) as connection:
            now = _agent_hosts(connection)
        before, self._known_hosts = self._known_hosts, now
        return {host.encode() for host in now - before}, {host.encode() for host in before - now}

    def keep_fresh(self, fence: Fence, kind: str) -> None:
        """Give agents that count as alive a heartbeat before Neutron calls them dead: a loss that is held is none."""
        if kind != observed.AGENT:
            return
        old = _utcnow() - timedelta(seconds=self._plugin().agent_down_time / 2)
        ours = AGENTS.c.agent_type == AGENT_TYPE
        rows = self.tables.observed.c
        with fenced(self.engine, fence, self.tables.fence) as connection:
            stale = connection.execute(select(AGENTS.c.host).where(ours, AGENTS.c.heartbeat_timestamp < old)).scalars()
            keys = sorted(key for host in stale if (key := self._key(host)))
            for batch in batches(keys):
                seen = connection.execute(select(rows.key, rows.doc).where(rows.key.in_(batch)))
                alive = [self._host(row.key) for row in seen if _is_alive(row.doc)]
                fresh = update(AGENTS).where(ours, AGENTS.c.host.in_(alive)).values(heartbeat_timestamp=_utcnow())
                connection.execute(fresh)

    def _write_agents(self, fence: Fence, agents: Sequence[tuple[bytes, AgentSeen]]) -> dict[bytes, str]:
        plugin = self._plugin()
        now = _utcnow()
        dead_since = now - timedelta(seconds=plugin.agent_down_time + 1)
        with fenced(self.engine, fence, self.tables.fence) as connection:
            known = _agent_hosts(connection)
            for alive, at in ((True, now), (False, dead_since)):
                hosts = {self._host(key) for key, seen in agents if seen.alive is alive}
                for batch in batches(sorted(hosts & known)):
                    mine = AGENTS.c.agent_type == AGENT_TYPE, AGENTS.c.host.in_(batch)
                    connection.execute(update(AGENTS).where(*mine).values(heartbeat_timestamp=at))
        new = [key for key, seen in agents if seen.alive and self._host(key) not in known]
        return refusals(new, lambda key: plugin.register_agent(self._host(key)))

    def _write_endpoints(self, seen: EndpointSeen, keys: Sequence[bytes]) -> dict[bytes, str]:
        if not seen.known or seen.status is ObservedState.NONE:
            return {}
        plugin = self._plugin()

        def write(key: bytes) -> None:
            name = ENDPOINT_STATUS.parse(key, self._region)
            if not isinstance(name, Bad) and not plugin.set_port_status(name.endpoint, name.host, seen.status.value):
                log.info("port is no longer bound to the host that reports it", port=name.endpoint, host=name.host)

        return refusals(keys, write)

    def _with_status(self, connection: Connection, rows: Sequence[ObservedRow]) -> list[ObservedRow]:
        """Rows of endpoints with the status of their port; a port that is gone leaves its row as it is."""
        ports = {row.key: self._port(row.key) for row in rows}
        status: dict[str, str] = {}
        for batch in batches(sorted({port for port in ports.values() if port})):
            found = connection.execute(select(PORTS.c.id, PORTS.c.status).where(PORTS.c.id.in_(batch)))
            status |= {row[0]: row[1] for row in found}
        return [_as_in_neutron(row, status.get(ports[row.key])) for row in rows]

    def _registered(self, connection: Connection, rows: Sequence[ObservedRow]) -> list[ObservedRow]:
        """Rows of agents; one that an operator deleted from Neutron is shown as never seen, and registered again."""
        known = _agent_hosts(connection)
        return [row if self._host(row.key) in known else ObservedRow(row.key, _NEVER_SEEN, row.at) for row in rows]

    def _port(self, key: bytes) -> str:
        name = ENDPOINT_STATUS.parse(key, self._region)
        return "" if isinstance(name, Bad) else name.endpoint

    def _key(self, host: str) -> bytes | None:
        try:
            return AGENT_STATUS.key(self._region, host)
        except NameRefused:
            return None

    def _host(self, key: bytes) -> str:
        name = AGENT_STATUS.parse(key, self._region)
        return "" if isinstance(name, Bad) else str(name)


def refusals(keys: Sequence[bytes], write: Callable[[bytes], None]) -> dict[bytes, str]:
    """Write key by key. Returns what Neutron refused, with the reason: one port does not fail its batch."""
    refused: dict[bytes, str] = {}
    for key in keys:
        try:
            write(key)
        except Away:
            raise
        except Exception as error:  # noqa: BLE001 -- Neutron, its plugins and drivers raise anything
            refused[key] = f"Neutron refused it: {type(error).__name__}: {error}"
    return refused


def without(rows: Mapping[bytes, Sequence[bytes]], refused: Collection[bytes]) -> Mapping[bytes, Sequence[bytes]]:
    """Leave refused keys out, and documents that have no key then."""
    kept = {doc: [key for key in keys if key not in refused] for doc, keys in rows.items()}
    return {doc: keys for doc, keys in kept.items() if keys}


_NEVER_SEEN = codec.encode(AgentSeen(False))


def _as_in_neutron(row: ObservedRow, status: str | None) -> ObservedRow:
    try:
        seen = _endpoint.decode(row.doc)
    except msgspec.MsgspecError:
        return row
    if status is None or seen.status.value == status:
        return row
    state = _STATES.get(status, ObservedState.NONE)
    return ObservedRow(row.key, codec.encode(EndpointSeen(state, seen.known)), row.at)


def _is_alive(doc: bytes) -> bool:
    try:
        return _agent.decode(doc).alive
    except msgspec.MsgspecError:
        return False  # the next audit writes it again


def _agent_hosts(connection: Connection) -> set[str]:
    return set(connection.execute(select(AGENTS.c.host).where(AGENTS.c.agent_type == AGENT_TYPE)).scalars())


def _utcnow() -> datetime:
    """Now, as Neutron stores it: in UTC and without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)
