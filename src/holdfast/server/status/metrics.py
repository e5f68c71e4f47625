"""Metrics of the status workers. Labels are bounded: causes and states are enums."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.model.base.time import Duration
from holdfast.server.status.rules.staleness import Backlog, Cause, Staleness


class StatusMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._stale = counter(
            "holdfast_stale_reports", "Reports that were stale when they were handled, by cause.", ["cause"]
        )
        self._unparseable = counter("holdfast_unparseable_reports", "Reports with an unparseable time.")
        self._behind = gauge("holdfast_status_behind_revisions", "Revisions of the store that are not handled yet.")
        self._oldest = gauge("holdfast_status_behind_seconds", "Age of the oldest report that waits to be handled.")
        self._skew = gauge("holdfast_clock_skew_seconds", "Largest clock offset of a host, in either direction.")
        self._own = gauge("holdfast_server_clock_skew_seconds", "Offset of this server's clock ahead of most hosts.")
        self._delay = gauge("holdfast_agent_delay_seconds", "Largest delay of an agent's reports.")
        self._objects = gauge("holdfast_objects", "Objects by kind and state.", ["kind", "state"])
        self._orphans = gauge("holdfast_endpoints_without_agent", "Endpoints on hosts without a live agent.")
        self._misplaced_reports = counter(
            "holdfast_stray_statuses", "Reports about endpoints from hosts that they are not on."
        )
        self._bad = gauge("holdfast_bad_keys", "Unreadable values, which are skipped.")
        self._held = gauge("holdfast_agents_held", "Agents whose loss the mass-loss gate holds.")
        for cause in Cause:
            self._stale.labels(cause=cause.label)
        self._counted: dict[object, int] = {}

    def staleness(self, staleness: Staleness, behind: Backlog) -> None:
        for cause, count in staleness.counted.items():
            self._raise_to(self._stale.labels(cause=cause.label), cause, count)
        self._raise_to(self._unparseable, "unparseable", staleness.unparseable)
        self._behind.set(behind.revisions)
        self._oldest.set(behind.oldest.total_seconds())
        self._skew.set(max(staleness.skews().values(), key=abs, default=Duration(0)).total_seconds())
        self._own.set(staleness.own_offset().total_seconds())
        self._delay.set(max(staleness.delays.values(), default=Duration(0)).total_seconds())

    def objects(self, kind: str, states: Mapping[str, int]) -> None:
        for state, count in states.items():
            self._objects.labels(kind=kind, state=state).set(count)

    def findings(self, *, bad: int, held: int, orphans: int = 0, misplaced_reports: int = 0) -> None:
        self._bad.set(bad)
        self._held.set(held)
        self._orphans.set(orphans)
        self._raise_to(self._misplaced_reports, "misplaced", misplaced_reports)

    def clear(self) -> None:
        """Clear the gauges: a server that does not lead knows nothing of the fleet."""
        lateness = self._behind, self._oldest, self._skew, self._own, self._delay
        for gauge in (*lateness, self._orphans, self._bad, self._held):
            gauge.set(0)
        self._objects.clear()

    def _raise_to(self, counter: Counter, name: object, count: int) -> None:
        counter.inc(max(0, count - self._counted.get(name, 0)))
        self._counted[name] = count
