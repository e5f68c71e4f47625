"""Views that a server answers queries with: its election and store, and one host.

A server answers for hosts from their reports in the store; it does not query the agents.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind, T
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS, AgentStatus
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST, Host
from holdfast.model.control.identity import LatchedVerdict
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.store.api import Entry, Store


class StoreSeen(msgspec.Struct, frozen=True):
    version: str
    members: int
    answering: int
    revision: int
    round_trip_ms: float
    compacted_ago_s: float | None = None
    """Age of this server's last compaction; None: none since it was started."""


class ElectorView(msgspec.Struct, frozen=True):
    """One elector's view. `store` is None while the store is unreachable; `leader` is empty while no server leads."""

    name: str
    phase: str
    leader: str
    term: int
    since_s: float
    lease_s: float
    ttl_s: float
    followers: Mapping[str, bool]
    """The servers that do not lead, this one included, and whether each is eligible."""
    confirmed_s: float | None = None
    """Age of the last answer of the store about leadership; None before the first."""
    last_term: int = 0
    """Term that this server has or had last; 0 if it has not led since it was started."""
    fleet: str = ""
    """The fleet that the store belongs to."""
    refused: str = ""
    """Reason for which this server may not take part in elections, in one sentence; empty while it may."""
    paused: str = ""
    """Operator who paused it, until when and why; empty while it is not paused."""
    store: StoreSeen | None = None
    store_error: str = ""
    refuses_store: str = ""
    """Reason for which this server rejects the store (foreign, restored from a backup); empty when it accepts it."""
    opens: str = ""
    """The command that makes it accept the store, where there is one."""
    verdict: str = ""
    """Name of the verdict for which it rejects the store, such as `store_restored`."""
    recorded: LatchedVerdict | None = None
    """Verdict on store or inventory that the leader has recorded in the store, whatever this server thinks of it."""


class FleetVerdict(msgspec.Struct, frozen=True):
    """Verdict of the leader on inventory and store, and the changes that it holds."""

    name: str
    """Label of a `FleetIdentityReason`, such as `inventory_restored`."""
    sentence: str
    opens: str
    held: Mapping[str, int] = {}
    """Number of changes held, by operation."""
    kinds: list[str] = []
    """Kinds of the objects that are held."""


class HostSeen(msgspec.Struct, frozen=True):
    """One host. `reported` is by the host's own clock."""

    name: str
    known: bool
    """True if the syncer has written it to the store."""
    addresses: list[str]
    endpoints: int
    alive: bool
    """True if its report is there, readable or not (C39)."""
    reported: str | None = None
    report: AgentReport | None = None
    unreadable: list[str] = []
    """One sentence per value that cannot be read."""


async def read_host(store: Store, region: Region, name: str) -> HostSeen:
    """Raise `StoreAway` or `StoreError`; `NameRefused` where no host can have that name."""
    bad: list[str] = []
    host: Host | None = await _read(store, HOST, region, name, bad)
    live = await store.get(AGENT_STATUS.key(region, name))
    alive: AgentStatus | None = _decoded(AGENT_STATUS, live, bad)
    last: AgentStatus | None = await _read(store, LAST_STATUS, region, name, bad) or alive
    report: AgentReport | None = await _read(store, AGENT_REPORT, region, name, bad)
    return HostSeen(
        name=name,
        known=host is not None,
        addresses=[text for version in (4, 6) if host and (text := host.underlay(version))],
        endpoints=await _endpoints(store, region, name),
        alive=live is not None,
        reported=last.time if last else None,
        report=report,
        unreadable=bad,
    )


async def _read(store: Store, kind: Kind[T, str], region: Region, name: str, bad: list[str]) -> T | None:
    return _decoded(kind, await store.get(kind.key(region, name)), bad)


def _decoded(kind: Kind[T, str], entry: Entry | None, bad: list[str]) -> T | None:
    if entry is None:
        return None
    found = kind.decode(entry.key, entry.value)
    if isinstance(found, Bad):
        bad.append(str(found))
        return None
    return found


async def _endpoints(store: Store, region: Region, name: str) -> int:
    """Endpoint names begin with the name of their host, so this is one range."""
    prefix = ENDPOINT.prefix(region) + f"{name.replace('-', '--')}-".encode()
    return sum([len(page.entries) async for page in store.list(prefix, keys_only=True)])
