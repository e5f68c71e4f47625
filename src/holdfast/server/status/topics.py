"""The two topics of status, put together: agents and endpoints. Each keeps a mirror of its own keys (C30)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from holdfast.inventory.api import Observed
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.agent_status import AgentStatus
from holdfast.model.fleet.observed import AgentSeen, EndpointSeen
from holdfast.runtime.clock import Clock
from holdfast.server.status.agents import AgentRules
from holdfast.server.status.endpoints import EndpointRules, Said
from holdfast.server.status.inventory_rows import EndpointRows, HostRows
from holdfast.server.status.term import StatusKind
from holdfast.store.api import OwnKey, Store
from holdfast.store.mirror.mirror import Mirror

GATHER = Duration(milliseconds=200)
"""What is reported goes into the inventory a few times a second at most: reading it more often would only cost, on
followers as well, where thousands of agents report all the time. Longer, and etcd gives up on a watch whose reader
stands still and has it catch up instead: with 5,000 changes a second that took seconds."""

AGENT_STATUS = "agent-status"
ENDPOINT_STATUS = "endpoint-status"

AgentTopic = StatusKind[AgentStatus, AgentSeen]
EndpointTopic = StatusKind[Said, EndpointSeen]


def agents(
    region: Region, store: Store, observed: Observed, aside: RunInThread, clock: Clock, own: OwnKey | None = None
) -> AgentTopic:
    subject = AgentRules(region)
    mirror = Mirror(store, subject.prefix, subject.decode, own=own, now=clock.now, gather=GATHER)
    return StatusKind(AGENT_STATUS, subject, mirror, HostRows(subject, observed, aside), AgentSeen(False), agent_states)


def endpoints(
    region: Region, store: Store, observed: Observed, aside: RunInThread, clock: Clock, own: OwnKey | None = None
) -> EndpointTopic:
    subject = EndpointRules(region)
    mirror: Mirror[Said] = Mirror(store, subject.prefix, subject.decode, own=own, now=clock.now, gather=GATHER)
    rows = EndpointRows(subject, observed, aside)

    def extra() -> Mapping[str, int]:
        return {"lonely": sum(subject.orphans().values()), "strays": subject.strays}

    return StatusKind(ENDPOINT_STATUS, subject, mirror, rows, EndpointSeen(), endpoint_states, extra)


def agent_states(rows: Iterable[AgentSeen]) -> Mapping[str, int]:
    alive = Counter(seen.alive for seen in rows)
    return {"alive": alive[True], "silent": alive[False]}


def endpoint_states(rows: Iterable[EndpointSeen]) -> Mapping[str, int]:
    states = dict.fromkeys(("up", "down", "error", "unknown"), 0)
    for seen, count in Counter(rows).items():
        states[seen.shown] += count
    return states
