"""The two kinds of status, put together: agents and endpoints. Each has a mirror of its own keys (C30)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from holdfast.inventory.api import Observed
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, Instant
from holdfast.model.calico.agent_status import AgentStatus
from holdfast.model.fleet.observed import AgentSeen, EndpointSeen
from holdfast.server.status.inventory_rows import EndpointRows, HostRows, InventoryRows
from holdfast.server.status.rules import StatusRules
from holdfast.server.status.rules.agents import AgentRules
from holdfast.server.status.rules.endpoints import EndpointReport, EndpointRules
from holdfast.store.api import OwnKey, Store
from holdfast.store.mirror.mirror import Mirror

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)
Now = Callable[[], Instant]

GATHER = Duration(milliseconds=200)
"""Reports reach the inventory a few times a second at most: reading them more often would only cost, on followers as
well, where thousands of agents report all the time. With a longer interval, etcd gives up on a watch whose reader is
blocked, and makes it catch up instead: with 5,000 changes a second that took seconds."""


@dataclass
class StatusKind(Generic[T, V]):
    """Lives on leader and follower alike: the mirror is warm, so that a new leader compares what it has (C16)."""

    rules: StatusRules[T, V]
    mirror: Mirror[T]
    rows: InventoryRows
    observed: Observed
    run_in_thread: RunInThread


def agents(
    region: Region, store: Store, observed: Observed, run_in_thread: RunInThread, now: Now, own: OwnKey | None = None
) -> StatusKind[AgentStatus, AgentSeen]:
    rules = AgentRules(region)
    mirror = Mirror(store, rules.prefix, rules.decode, own=own, now=now, gather=GATHER)
    return StatusKind(rules, mirror, HostRows(rules, observed, run_in_thread), observed, run_in_thread)


def endpoints(
    region: Region, store: Store, observed: Observed, run_in_thread: RunInThread, now: Now, own: OwnKey | None = None
) -> StatusKind[EndpointReport, EndpointSeen]:
    rules = EndpointRules(region)
    mirror: Mirror[EndpointReport] = Mirror(store, rules.prefix, rules.decode, own=own, now=now, gather=GATHER)
    return StatusKind(rules, mirror, EndpointRows(rules, observed, run_in_thread), observed, run_in_thread)
