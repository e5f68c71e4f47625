"""What the status workers measure beside what every worker does. Labels are bounded: causes and states are enums."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.model.base.time import Duration
from holdfast.server.status.staleness import Backlog, Cause, Staleness


class StatusMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._stale = Counter(
            "holdfast_stale_reports",
            "Reports that were old when they were handled, by cause.",
            ["cause"],
            registry=registry,
        )
        self._unparseable = Counter(
            "holdfast_unparseable_reports", "Reports whose time could not be understood.", registry=registry
        )
        self._behind = Gauge(
            "holdfast_status_behind_revisions", "Revisions of the store that were not handled yet.", registry=registry
        )
        self._waited = Gauge(
            "holdfast_status_behind_seconds", "For how long the oldest report has waited for us.", registry=registry
        )
        self._skew = Gauge(
            "holdfast_clock_skew_seconds", "The clock that is off furthest, in either direction.", registry=registry
        )
        self._delay = Gauge(
            "holdfast_agent_delay_seconds", "By how much the latest of the agents reports late.", registry=registry
        )
        self._objects = Gauge("holdfast_objects", "Objects by kind and state.", ["kind", "state"], registry=registry)
        self._lonely = Gauge(
            "holdfast_endpoints_without_agent", "Endpoints on hosts without a live agent.", registry=registry
        )
        self._strays = Counter(
            "holdfast_stray_statuses", "Words about endpoints from hosts that they are not on.", registry=registry
        )
        self._bad = Gauge("holdfast_bad_keys", "Values that cannot be read, and are passed over.", registry=registry)
        self._vanished = Gauge(
            "holdfast_agents_held", "Agents whose loss is held as too many at once.", registry=registry
        )
        for cause in Cause:
            self._stale.labels(cause=cause.label)
        self._counted: dict[object, int] = {}

    def staleness(self, staleness: Staleness, behind: Backlog) -> None:
        for cause, count in staleness.counted.items():
            self._raise(self._stale.labels(cause=cause.label), cause, count)
        self._raise(self._unparseable, "unparseable", staleness.unparseable)
        self._behind.set(behind.revisions)
        self._waited.set(behind.oldest.total_seconds())
        skews = [staleness.skew(host) for host in staleness.offsets]
        self._skew.set(max(skews, key=abs, default=Duration(0)).total_seconds())
        self._delay.set(max(staleness.delays.values(), default=Duration(0)).total_seconds())

    def objects(self, kind: str, states: Mapping[str, int]) -> None:
        for state, count in states.items():
            self._objects.labels(kind=kind, state=state).set(count)

    def findings(self, *, bad: int, held: int, lonely: int = 0, strays: int = 0) -> None:
        self._bad.set(bad)
        self._vanished.set(held)
        self._lonely.set(lonely)
        self._raise(self._strays, "strays", strays)

    def nothing(self) -> None:
        """A server that does not lead knows nothing of the fleet, and must not go on saying what it last knew."""
        for gauge in (self._behind, self._waited, self._skew, self._delay, self._lonely, self._bad, self._vanished):
            gauge.set(0)
        self._objects.clear()

    def _raise(self, counter: Counter, name: object, count: int) -> None:
        counter.inc(max(0, count - self._counted.get(name, 0)))
        self._counted[name] = count
