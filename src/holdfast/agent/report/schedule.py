"""Schedule of reports: when an agent reports, and whether its host may look alive at all. Pure.

A full report is written every `interval`. In between, only a change of gates, failures or problem counts is worth a
write, and no two writes are closer than `spacing`: the synced revision, the number of programmed objects and the clock
change all the time, and on 5,000 hosts one new endpoint would cause 5,000 writes.

N17: an agent whose loop hangs must not look alive for ever. The reporter is another process than the worker, so it
reports only while the worker answers: after `silent_after` without an answer it writes nothing, and the lease expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from msgspec.structs import replace

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.fleet.agent_report import AgentReport

STEADY = frozenset({"peers", "programmed"})
"""Counts that change on every host when the fleet does: they wait for the next full report."""


class Due(Enum):
    """Kind of report that is due."""

    NOTHING = "nothing has changed"
    CHANGE = "a gate, a failure or a count has changed"
    ALIVE = "the liveness report is due"


@dataclass(frozen=True, slots=True)
class ReportIntervals:
    """Report intervals, and how long the reporter reports for a worker that does not answer."""

    interval: Duration = Duration(seconds=30)
    spacing: Duration = Duration(seconds=5)
    silent_after: Duration = Duration(seconds=30)


@dataclass(frozen=True, slots=True)
class LastReport:
    """Last report in the store, and when it was written."""

    alive: Instant = NEVER
    at: Instant = NEVER
    report: AgentReport | None = None

    def then(self, due: Due, report: AgentReport, now: Instant) -> LastReport:
        return LastReport(now if due is Due.ALIVE else self.alive, now, report)


def is_silent(answered: Instant, intervals: ReportIntervals, now: Instant) -> bool:
    """Return whether the worker has not answered for too long, or never."""
    return not answered or now - answered > intervals.silent_after  # protection: N17


def due(last: LastReport, report: AgentReport, intervals: ReportIntervals, now: Instant) -> Due:
    if last.report is None or not last.alive or now - last.alive >= intervals.interval:
        return Due.ALIVE
    if significant(report) == significant(last.report) or now - last.at < intervals.spacing:
        return Due.NOTHING
    return Due.CHANGE


def written(due: Due, report: AgentReport, last: LastReport) -> AgentReport:
    """Build the report to write: between two full reports, revision and clock stay those of the last one."""
    if due is Due.ALIVE or last.report is None:
        return report
    return replace(report, synced_revision=last.report.synced_revision, clock_skew=last.report.clock_skew)


def significant(report: AgentReport) -> AgentReport:
    """Reduce a report to the part that is worth a write of its own."""
    counts = {state: count for state, count in report.counts.items() if state not in STEADY}
    return replace(report, counts=counts, synced_revision=None, clock_skew=None)


def clock_skew(wall: datetime, now: Instant, store_clock: tuple[datetime, Instant] | None) -> float | None:
    """Seconds by which our clock is ahead of the store's. The store gives whole seconds: less than one counts as
    zero."""
    if store_clock is None:
        return None
    store_time, at = store_clock
    ahead = (wall - (store_time + (now - at))).total_seconds() - 0.5
    return round(ahead, 1) if abs(ahead) >= 1.0 else 0.0
