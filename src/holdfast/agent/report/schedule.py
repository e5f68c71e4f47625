"""When an agent reports, and whether its host may look alive at all.

Alive is said every `interval`, with all there is to say. In between only what changed of gates, failures and counts of
trouble is worth a write, and no two writes are closer than `spacing`: the revision that an agent has synced to, how
much it has programmed, and its clock change all the time, and on 5,000 hosts one new endpoint would be 5,000 writes.

N17: an agent whose loop hangs must not look alive for ever. The reporter is another process than the one that works,
so it says alive only while that one answers: after `silent_after` without a word nothing is written any more, and the
lease runs out by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from msgspec.structs import replace

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.fleet.agent_report import AgentReport

STEADY = frozenset({"peers", "programmed"})
"""Counts that every host's agent changes when the fleet does: they ride on the next sign of life."""


class Due(Enum):
    """What is to be written now."""

    NOTHING = "nothing has changed"
    CHANGE = "a gate, a failure or a count has changed"
    ALIVE = "it is time to say alive"


@dataclass(frozen=True, slots=True)
class ReportIntervals:
    """How often an agent speaks, and how long it speaks for a worker that does not."""

    interval: Duration = Duration(seconds=30)
    spacing: Duration = Duration(seconds=5)
    silent_after: Duration = Duration(seconds=30)


@dataclass(frozen=True, slots=True)
class LastReport:
    """What the store was last told, and when."""

    alive: Instant = NEVER
    at: Instant = NEVER
    report: AgentReport | None = None

    def said(self, due: Due, report: AgentReport, now: Instant) -> LastReport:
        return LastReport(now if due is Due.ALIVE else self.alive, now, report)


def is_silent(heard: Instant, tempo: ReportIntervals, now: Instant) -> bool:
    """Whether the worker that does the work has not been heard of for too long; never is too long, too."""
    return not heard or now - heard > tempo.silent_after


def due(told: LastReport, report: AgentReport, tempo: ReportIntervals, now: Instant) -> Due:
    if told.report is None or not told.alive or now - told.alive >= tempo.interval:
        return Due.ALIVE
    if essence(report) == essence(told.report) or now - told.at < tempo.spacing:
        return Due.NOTHING
    return Due.CHANGE


def written(due: Due, report: AgentReport, told: LastReport) -> AgentReport:
    """The report as it is written: between two signs of life, revision and clock are those of the last one."""
    if due is Due.ALIVE or told.report is None:
        return report
    return replace(report, synced_revision=told.report.synced_revision, clock_skew=told.report.clock_skew)


def essence(report: AgentReport) -> AgentReport:
    """All of a report that is worth a write of its own."""
    counts = {state: count for state, count in report.counts.items() if state not in STEADY}
    return replace(report, counts=counts, synced_revision=None, clock_skew=None)


def clock_skew(wall: datetime, now: Instant, dated: tuple[datetime, Instant] | None) -> float | None:
    """Seconds by which our clock is ahead of the store's, which is told to the second: less than that is nothing."""
    if dated is None:
        return None
    said, at = dated
    ahead = (wall - (said + (now - at))).total_seconds() - 0.5
    return round(ahead, 1) if abs(ahead) >= 1.0 else 0.0
