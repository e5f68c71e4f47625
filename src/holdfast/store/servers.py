"""List of the servers of a region, with their roles, as any process can read it from the store."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.server import SERVER, Server
from holdfast.store.api import Entry, Store, StoreError

LEADING, FOLLOWING = "leader", "follower"
_STALE_SHARE = 3
"""A term is shown as stale when a third of its lease has passed without a renewal: by default two were missed."""


class ServerSeen(msgspec.Struct, frozen=True):
    """One server. `term` is that of the leader, 0 on a follower."""

    name: str
    role: str
    term: int
    version: str
    host: str
    able: bool
    """It can do the work of a leader, and would take over."""
    why_not: str = ""
    """Reasons for which it cannot, or would not."""
    lag_s: float = 0.0
    pauses: tuple[str, ...] = ()
    unrenewed_s: float = 0.0
    """Age of the last renewal of a leader that has missed renewals; 0 while it renews in time."""


async def read_servers(store: Store, region: Region) -> list[ServerSeen]:
    """Return all registered servers, and a leader that is not registered. Raises `StoreAway` or `StoreError`."""
    key = LEADER.key(region, "leader")
    entry = await store.get(key)
    leader = LEADER.decode(key, entry.value) if entry is not None else None
    term = entry.create_revision if entry is not None else 0
    servers: dict[str, Server] = {}
    async for page in store.list(SERVER.prefix(region)):
        for one in page.entries:
            name, server = SERVER.parse(one.key, region), SERVER.decode(one.key, one.value)
            if not isinstance(name, Bad) and not isinstance(server, Bad):
                servers[name] = server
    stale_s = await unrenewed_s(store, entry)
    return servers_seen(servers, None if isinstance(leader, Bad) else leader, term, stale_s)


async def unrenewed_s(store: Store, leader: Entry | None) -> float:
    """Return the age of the last renewal of a term if it is stale; 0 if it is not, or if that cannot be read."""
    if leader is None or not leader.lease:
        return 0.0
    try:
        time = await store.lease_time(leader.lease)
    except StoreError:  # the lease ended just now, or etcd does not let this user read it
        return 0.0
    return time.unrenewed.total_seconds() if time.unrenewed >= time.ttl / _STALE_SHARE else 0.0


def servers_seen(
    servers: dict[str, Server], leader: Leader | None, term: int, unrenewed_s: float = 0.0
) -> list[ServerSeen]:
    """Put reports and leader key together; sorted by name."""
    rows = {name: _seen(name, server, leader, term) for name, server in servers.items()}
    if leader is not None and leader.name not in rows:
        why = "it has no report under servers/: its registration has expired"
        rows[leader.name] = ServerSeen(leader.name, LEADING, term, "", leader.host, able=False, why_not=why)
    if leader is not None:
        rows[leader.name] = replace(rows[leader.name], unrenewed_s=unrenewed_s)
    return [rows[name] for name in sorted(rows)]


def _seen(name: str, server: Server, leader: Leader | None, term: int) -> ServerSeen:
    leads = leader is not None and leader.name == name
    return ServerSeen(
        name=name,
        role=LEADING if leads else FOLLOWING,
        term=term if leads else 0,
        version=server.version,
        host=server.host,
        able=server.eligible,
        why_not=server.why_not,
        lag_s=server.lag_s,
        pauses=server.pauses,
    )
