"""Rules for endpoints: from the reports of their host's agent to their rows in the inventory. Pure.

Only reports of the host that an endpoint is on count (C24): the inventory's row decides which key is read. Reported by
a live agent: up, down, error are ACTIVE, DOWN, ERROR, and no report is DOWN. While its agent is not alive, the last
value is kept and shown as unknown. An unreadable value is present, and leaves the last one in place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus
from holdfast.model.fleet.observed import ENDPOINT, EndpointSeen, ObservedState
from holdfast.server.status.rules.agents import NOT_OURS, is_report_of_agent
from holdfast.server.status.rules.bindings import WORKLOAD, Bindings, Bound
from holdfast.store.mirror.pending import Delta

_STATES = {
    EndpointState.UP: ObservedState.ACTIVE,
    EndpointState.DOWN: ObservedState.DOWN,
    EndpointState.ERROR: ObservedState.ERROR,
}
_SEEN = {state: EndpointSeen(observed) for state, observed in _STATES.items()}
_UNREPORTED = EndpointSeen(ObservedState.DOWN)
_UNKNOWN = {state: EndpointSeen(state, known=False) for state in ObservedState}
_MOST_REMEMBERED = 1_000
_is_plain = re.compile(rb"[\w.-]+/workload/[\w.-]+/(?:[\w.-]|%2f)+/endpoint/[\w.-]+").fullmatch
"""Recognises the keys of nearly all endpoints, at a quarter of what parsing them costs: they are readable."""


class Alive:
    """Report of an agent; only its presence matters here."""


ALIVE = Alive()
EndpointReport = EndpointStatus | Alive


class EndpointRules:
    """State of endpoints: `reports` as the mirror has them, `bindings` as the inventory has them."""

    name = "endpoint-status"
    kind = ENDPOINT
    plural = "endpoints"
    blank = EndpointSeen()
    dated = False
    routine = None

    def __init__(self, region: Region) -> None:
        self.region = region
        self.prefix = ENDPOINT_STATUS.prefix(region)
        self._start = len(self.prefix)
        self.bindings = Bindings(region)
        """The endpoints of the inventory."""
        self.reports: Mapping[bytes, EndpointReport] = {}
        self.bad: Mapping[bytes, Bad] = {}
        self._decoded: dict[bytes, EndpointStatus] = {}
        self._reported: set[str] = set()
        self.misplaced_reports = 0
        """Reports about endpoints that are not on the host that sent them."""

    def decode(self, key: bytes, value: bytes) -> EndpointReport | Bad:
        if key.find(WORKLOAD, self._start) < 0:
            if not is_report_of_agent(key, self._start):
                return NOT_OURS
            self._reported.add(self.host(key))
            return ALIVE
        if key not in self.reports and not _is_plain(key, self._start):
            name = ENDPOINT_STATUS.parse(key, self.region)
            if isinstance(name, Bad):
                return name
        known = self._decoded.get(value)
        if known is not None:
            return known
        decoded = ENDPOINT_STATUS.decode(key, value)
        if not isinstance(decoded, Bad) and len(self._decoded) < _MOST_REMEMBERED:
            self._decoded[value] = decoded  # there are three states, and a hundred thousand endpoints
        return decoded

    def bound(self, key: bytes) -> Bound | None:  # protection: C24
        """C24: the endpoint reported at that key, if the inventory has it on the host that reports."""
        return self.bindings.endpoints.get(key)

    def affected(self, deltas: Sequence[Delta[EndpointReport]]) -> Iterable[bytes]:
        """Keys to compare again. A report of an agent concerns its host's endpoints."""
        bound = self.bound
        keys = [delta.key for delta in deltas if bound(delta.key) is not None]
        if len(keys) < len(deltas):
            for delta in deltas:
                if bound(delta.key) is None:
                    self.misplaced_reports += isinstance(delta.new, EndpointStatus)
                    keys += self.bindings.endpoints_of(delta.key)
        return keys

    def take_reported(self, _fresh: Iterable[bytes]) -> Collection[str]:
        """Hosts whose agent has reported since the last call; a heartbeat of an agent is no change here."""
        reported, self._reported = self._reported, set()
        return reported

    def reporting(self) -> int:
        return sum(1 for agent in self.bindings.per_agent() if agent in self.reports)

    def keys(self) -> Collection[bytes]:
        return self.bindings.endpoints.keys()

    def want(self, key: bytes, last: EndpointSeen | None) -> EndpointSeen | None:
        bound = self.bound(key)
        if bound is None:
            return None
        report = self.reports.get(key)
        if bound.agent not in self.reports:
            return _UNKNOWN[last.status if last is not None else _state(report)]
        if key in self.bad:
            # The inventory's row, not the last good report: the next leader may remember another report.
            return EndpointSeen(last.status if last is not None else _state(report))
        return _SEEN[report.status] if isinstance(report, EndpointStatus) else _UNREPORTED

    def is_alive(self, value: EndpointSeen) -> bool:
        """True if the agent of its host is alive."""
        return value.known

    def is_loss(self, old: EndpointSeen, new: EndpointSeen | None) -> bool:
        """True if that change makes an endpoint unknown because its host was lost."""
        return old.known and new is not None and not new.known

    def host(self, key: bytes) -> str:
        return key[self._start : key.find(b"/", self._start)].decode(errors="replace")

    def object_name(self, key: bytes) -> str:
        """Name in the inventory, on whichever host it is."""
        parts = self._parts(key)
        return _joined(parts[1:]) if parts else key.decode(errors="backslashreplace")

    def show(self, key: bytes) -> str:
        """Same form as the syncer's, so that the decision log has all about an endpoint under one name."""
        bound = self.bound(key)
        if bound is not None and bound.name:
            return f"endpoint {bound.name.decode()}"
        name = self._parts(key)
        return f"endpoint {_joined(name)}" if name else key.decode(errors="backslashreplace")

    def words(self, value: EndpointSeen) -> str:
        return value.words

    in_full = words

    def _parts(self, key: bytes) -> Sequence[str]:
        """Host, orchestrator, workload and endpoint; empty for a key of another form."""
        name = ENDPOINT_STATUS.parse(key, self.region)
        return () if isinstance(name, Bad) else (name.host, name.orchestrator, name.device, name.endpoint)

    def orphans(self) -> Mapping[str, int]:
        """Hosts without a live agent that have endpoints, and how many: no agent programs these."""
        agents = sorted(self.bindings.per_agent().items())
        return {self.host(agent): count for agent, count in agents if agent not in self.reports}

    def states(self, rows: Iterable[EndpointSeen]) -> Mapping[str, int]:
        states = dict.fromkeys(("up", "down", "error", "unknown"), 0)
        for seen, count in Counter(rows).items():
            states[seen.shown] += count
        return states

    def counts(self) -> Mapping[str, int]:
        return {"orphans": sum(self.orphans().values()), "misplaced_reports": self.misplaced_reports}


def _joined(parts: Sequence[str]) -> str:
    return "-".join([part.replace("-", "--") for part in parts])


def _state(report: EndpointReport | None) -> ObservedState:
    return _STATES[report.status] if isinstance(report, EndpointStatus) else ObservedState.NONE
