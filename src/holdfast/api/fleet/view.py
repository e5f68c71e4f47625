"""Follows the reports in etcd, so that the API answers for every host of the fleet without asking it.

Only the hosts whose keys changed are judged again. While the store is away everything stays as it was.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from holdfast.api.fleet.cells import CellState, HostCell, HostKeys, cell
from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, Instant
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS, AgentStatus
from holdfast.model.calico.host import HOST, Host
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.leader_history import LEADERSHIP, LeaderHistory, LeaderPeriod
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.runtime.intents.drains import Drain, seen
from holdfast.store.api import Store
from holdfast.store.boottime import boot_now
from holdfast.store.mirror.mirror import Mirror

log = structlog.get_logger(__name__)

_RETRY = Duration(seconds=1)
_CHANGES = 64
_EXAMPLES = 3
_FLEET_KINDS: tuple[Kind[Any, Any], ...] = (
    HOST,
    AGENT_STATUS,
    LAST_STATUS,
    AGENT_REPORT,
    BALANCER_REPORT,
    INTENT,
    LEADERSHIP,
)


class AgentGate(msgspec.Struct, frozen=True):
    """A gate that is closed in agents, for the same reason."""

    gate: str
    reason: str
    opens: str
    hosts: int
    examples: list[str]


@dataclass(frozen=True, slots=True)
class _Named:
    """One decoded value, with its kind and name."""

    kind: Kind[Any, Any]
    name: Any
    value: Any


class FleetView:
    """Run `run()` as a task. `version` rises with every change of `cells`."""

    def __init__(self, store: Store, region: Region, now: Callable[[], Instant] = boot_now) -> None:
        self._region = region
        self._now = now
        prefixes = dict.fromkeys(kind.prefix(region) for kind in _FLEET_KINDS)
        self._mirror: Mirror[_Named] = Mirror(store, tuple(prefixes), self._decode)
        self._hosts: dict[str, HostKeys] = {}
        self.cells: dict[str, HostCell] = {}
        self._changes: deque[tuple[int, Instant]] = deque(maxlen=_CHANGES)
        self.version = 0
        self.error = ""
        """Reason why the store cannot be read; empty while it can."""

    @property
    def is_complete(self) -> bool:
        """True once everything has been read."""
        return self._mirror.synced

    async def run(self) -> None:
        """Follow the store without end."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._mirror.keep_running(self._refused, _RETRY), name="fleet mirror")
            tasks.create_task(self._take(), name="fleet view")

    def _refused(self, error: Exception) -> None:
        self.error = str(error)
        log.warning("the store cannot be read; the view of the fleet stays as it is", error=self.error)

    async def _take(self) -> None:
        while True:
            deltas = await self._mirror.take()
            self.error = ""
            names = {name for delta in deltas if (name := self._host_of(delta.key)) is not None}
            for name in names:
                self._update(name)
            self.version += bool(names)

    def _decode(self, key: bytes, value: bytes) -> _Named | Bad:
        for kind in _FLEET_KINDS:
            name = kind.parse(key, self._region)
            if not isinstance(name, Bad):
                found = kind.decode(key, value)
                return found if isinstance(found, Bad) else _Named(kind, name, found)
        return Bad(key, BadReason.OTHER_KIND, "not shown by the API")

    def _host_of(self, key: bytes) -> str | None:
        for kind in (HOST, AGENT_STATUS, LAST_STATUS, AGENT_REPORT):
            name = kind.parse(key, self._region)
            if not isinstance(name, Bad):
                return str(name)
        intent = INTENT.parse(key, self._region)
        if isinstance(intent, Bad) or intent.what is not IntentKind.DRAIN:
            return None
        return intent.scope.name

    def _get(self, kind: Kind[Any, Any], name: Any) -> Any:
        found = self._mirror.objects.get(kind.key(self._region, name))
        return None if found is None else found.value

    def _update(self, name: str) -> None:
        host, now = self._get(HOST, name), self._now()
        assert host is None or isinstance(host, Host)
        before = self._hosts.get(name)
        report: AgentReport | None = self._get(AGENT_REPORT, name)
        last: AgentStatus | None = self._get(LAST_STATUS, name) or self._get(AGENT_STATUS, name)
        known = host is not None
        if known and (before is None or not before.known):
            self._changes.append((self._mirror.mod_revision(HOST.key(self._region, name)), now))
        if not known and report is None and last is None:
            self._hosts.pop(name, None)
            self.cells.pop(name, None)
            return
        is_same = before is not None and before.report is report
        one = self._hosts[name] = HostKeys(
            known=known,
            addresses=tuple(text for version in (4, 6) if host and (text := host.underlay(version))),
            alive=self._mirror.mod_revision(AGENT_STATUS.key(self._region, name)) > 0,
            last=last,
            report=report,
            reported_at=before.reported_at if before is not None and is_same else now,
            drain=self._drain(name),
        )
        if known or one.alive:
            self.cells[name] = cell(one, self._changes)
        else:  # a deleted host leaves its last report
            self.cells.pop(name, None)

    def _drain(self, host: str) -> Intent | None:
        """Return the drain in force. One that expires is noticed with the host's next report."""
        found: Intent | None = self._get(INTENT, IntentName(IntentKind.DRAIN, Scope(ScopeKind.HOST, host)))
        return found if found is not None and found.holds(datetime.now(UTC)) else None

    def _all(self, kind: Kind[Any, Any]) -> Iterable[_Named]:
        return (one for one in self._mirror.objects.values() if one.kind is kind)

    def hosts(self) -> dict[str, Any]:
        """Return the grid in a compact form: names, one letter per host, and the reasons of those not at head."""
        names = sorted(self.cells)
        return {
            "complete": self.is_complete,
            "error": self.error,
            "names": names,
            "states": "".join(self.cells[name].state.value for name in names),
            "reasons": {name: _reason(one) for name in names if (one := self.cells[name]).why},
            "letters": {state.value: state.name.lower() for state in CellState},
        }

    def agent_gates(self) -> list[AgentGate]:
        """Return the gates that are closed in agents, the most common first."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for name, host in sorted(self._hosts.items()):
            if host.alive and host.report is not None:
                for gate in host.report.gates:
                    found.setdefault((gate.gate, gate.reason, gate.opens), []).append(name)
        gates = [AgentGate(*key, len(hosts), hosts[:_EXAMPLES]) for key, hosts in found.items()]
        return sorted(gates, key=lambda one: -one.hosts)

    def totals(self) -> dict[str, Any]:
        """Return counts over all reports."""
        reports = [host.report for host in self._hosts.values() if host.alive and host.report is not None]
        counts: Counter[str] = Counter()
        for one in reports:
            counts.update(one.counts)
        return {
            "hosts": len(self.cells),
            "alive": sum(host.alive for host in self._hosts.values()),
            "reports": len(reports),
            "counts": dict(counts),
            "pending_deletes": sum(one.pending_deletes for one in reports),
            "unreadable": len(self._mirror.bad),
        }

    def balancers(self) -> dict[str, Any]:
        """Return the reports of all balancers."""
        found: dict[str, BalancerReport] = {str(one.name): one.value for one in self._all(BALANCER_REPORT)}
        return {name: msgspec.to_builtins(found[name]) for name in sorted(found)}

    def drains(self) -> list[Drain]:
        """Return the drains in force, each with the flows that the balancers still count."""
        names = {BALANCER_REPORT.parse(key, self._region): bad for key, bad in self._mirror.bad.items()}
        reports: dict[str, BalancerReport | Bad] = {name: bad for name, bad in names.items() if isinstance(name, str)}
        reports.update({str(one.name): one.value for one in self._all(BALANCER_REPORT)})
        found = [
            host.drain for _, host in sorted(self._hosts.items(), key=lambda one: one[0]) if host.drain is not None
        ]
        return [seen(drain, reports) for drain in found if drain.holds(datetime.now(UTC))]

    def intents(self) -> list[Intent]:
        return [one.value for one in self._all(INTENT)]

    def terms(self) -> list[LeaderPeriod]:
        """Return the terms of the region, oldest first."""
        found: LeaderHistory | None = next((one.value for one in self._all(LEADERSHIP)), None)
        return [] if found is None else list(found.periods)


def _reason(one: HostCell) -> Mapping[str, str]:
    return {
        "why": one.why,
        **({"since": one.since} if one.since else {}),
        **({"opens": one.opens} if one.opens else {}),
    }
