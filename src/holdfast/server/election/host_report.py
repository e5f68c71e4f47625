"""What a server knows of one host: the store's word on it, and what the host's agent last reported of itself.

A server answers for hosts from their reports; it asks no agent. Read when it is asked for, from the store alone.
"""

from __future__ import annotations

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind, T
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS, AgentStatus
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST, Host
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.store.api import Store


class HostSeen(msgspec.Struct, frozen=True):
    """One host. `reported` is by the host's own clock."""

    name: str
    known: bool
    """Whether the inventory has brought it into the store."""
    addresses: list[str]
    endpoints: int
    alive: bool
    reported: str | None = None
    report: AgentReport | None = None
    unreadable: list[str] = []
    """Sentences on values that cannot be read."""


async def seen(store: Store, region: Region, name: str) -> HostSeen:
    """Raises `StoreAway` or `StoreError`; `NameRefused` where no host can have that name."""
    bad: list[str] = []
    host: Host | None = await _read(store, HOST, region, name, bad)
    alive: AgentStatus | None = await _read(store, AGENT_STATUS, region, name, bad)
    last: AgentStatus | None = await _read(store, LAST_STATUS, region, name, bad)
    report: AgentReport | None = await _read(store, AGENT_REPORT, region, name, bad)
    return HostSeen(
        name=name,
        known=host is not None,
        addresses=[text for version in (4, 6) if host and (text := host.underlay(version))],
        endpoints=await _endpoints(store, region, name),
        alive=alive is not None,
        reported=last.time if last else None,
        report=report,
        unreadable=bad,
    )


async def _read(store: Store, kind: Kind[T, str], region: Region, name: str, bad: list[str]) -> T | None:
    entry = await store.get(kind.key(region, name))
    if entry is None:
        return None
    found = kind.decode(entry.key, entry.value)
    if isinstance(found, Bad):
        bad.append(str(found))
        return None
    return found


async def _endpoints(store: Store, region: Region, name: str) -> int:
    """Their names begin with their host's, so this is one range."""
    prefix = ENDPOINT.prefix(region) + f"{name.replace('-', '--')}-".encode()
    return sum([len(page.entries) async for page in store.list(prefix, keys_only=True)])
