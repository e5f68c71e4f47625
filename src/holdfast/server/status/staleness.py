"""Staleness: is a report old when it is handled, and whose doing is that? Ours, the host's clock's, or the agent's.

A live report that is more than `stale_after` old is warned about, at most once per `warn_every`, and the first time
always (C6). Never during a snapshot: what is listed then may have been said long ago (C8). A report without a time is
passed over, one with a time that cannot be understood is warned about. The age is taken apart: what the change has
waited for us is our backlog; what is left and has been the same report after report is a clock that is off; the rest
is the agent's own delay. A difference between two clocks is never taken for a backlog, and where we are that late
ourselves, that is what is said, whatever else there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.agent_status import Unclear

NOTHING = Duration(0)
STEADY = Duration(seconds=5)
"""Offsets of one host that differ by less say the same: times are whole seconds, and reports take a moment."""
OFF = Duration(seconds=10)
"""A clock that is further off is worth a word."""


class Cause(Enum):
    """Whose doing an old report is."""

    BACKLOG = "our backlog"
    CLOCK = "the host's clock is off"
    AGENT = "the agent reported late, or this is the first that we hear of its clock"

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far we are behind ourselves: revisions of the store, objects that wait, and for how long the oldest has."""

    revisions: int = 0
    waiting: int = 0
    oldest: Duration = NOTHING

    def __str__(self) -> str:
        waiting = f"{self.waiting:,} objects waiting, the oldest for {_clock(self.oldest)}"
        return f"{self.revisions:,} revisions behind, {waiting}"


@dataclass(frozen=True, slots=True)
class LateReport:
    """A warning. `age` is what the host's clock says, or how long the oldest change has waited."""

    cause: Cause
    age: Duration
    sentence: str


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far a host's clock is behind ours, as its fresh reports tell; known once two of them agree."""

    by: Duration
    agreed: bool = False

    def after(self, by: Duration) -> ClockOffset:
        return ClockOffset(by, abs(by - self.by) <= STEADY)


def is_first(last: Instant) -> bool:
    """C6: on a machine that was just started, "never" is not "five minutes ago"."""
    return not last


def is_judged(live: bool) -> bool:
    """C8: a snapshot tells what is, not what happens now."""
    return live


@dataclass(slots=True)
class Staleness:
    """One worker's judgement. Wall-clock times are handed in; none is read here."""

    stale_after: Duration = Duration(seconds=300)
    warn_every: Duration = Duration(seconds=300)
    offsets: dict[str, ClockOffset] = field(default_factory=dict)
    delays: dict[str, Duration] = field(default_factory=dict)
    """Agents whose last report was old by their own doing."""
    counted: dict[Cause, int] = field(default_factory=lambda: dict.fromkeys(Cause, 0))
    unparseable: int = 0
    last: LateReport | None = None
    """The last warning."""
    _warned: Instant = NEVER
    _puzzled: Instant = NEVER

    def report(
        self, host: str, reported: datetime | Unclear, *, live: bool, behind: Backlog, wall: datetime, now: Instant
    ) -> LateReport | str | None:
        """What is to be said about a report that is handled now: a warning, a word about its time, or nothing."""
        if not is_judged(live) or reported is Unclear.MISSING:
            return None
        if isinstance(reported, Unclear):
            return self._unclear(host, now)
        age = wall - reported
        self._learn(host, age, behind)
        if age <= self.stale_after:
            self.delays.pop(host, None)
            return None
        cause = self._cause(host, age, behind)
        self.counted[cause] += 1
        return self._warning(cause, age, self._about(host, reported, age, cause, behind), now)

    def waiting(self, behind: Backlog, now: Instant) -> LateReport | None:
        """The same question when nothing is handled at all: has a change waited for too long?"""
        if behind.oldest <= self.stale_after:
            return None
        sentence = f"status is behind, {Cause.BACKLOG.value}: {behind}"
        return self._warning(Cause.BACKLOG, behind.oldest, sentence, now)

    def forget(self, host: str) -> None:
        self.offsets.pop(host, None)
        self.delays.pop(host, None)

    def begin(self) -> None:
        """A new term: whoever was silent meanwhile was not missed, so what was learned before may be of nobody."""
        self.offsets.clear()
        self.delays.clear()

    def skew(self, host: str) -> Duration:
        """How far the host's clock is ahead of ours, as far as is known."""
        offset = self.offsets.get(host)
        return -offset.by if offset is not None and offset.agreed and abs(offset.by) > OFF else NOTHING

    def _learn(self, host: str, age: Duration, behind: Backlog) -> None:
        """Only a report that did not wait for us says something about its host."""
        if behind.oldest > STEADY:
            return
        known = self.offsets.get(host)
        self.offsets[host] = ClockOffset(age) if known is None else known.after(age)

    def _cause(self, host: str, age: Duration, behind: Backlog) -> Cause:
        theirs = age - behind.oldest
        offset = self.offsets.get(host)
        by_clock = offset is not None and offset.agreed and theirs - offset.by <= self.stale_after
        if theirs <= self.stale_after or by_clock:
            self.delays.pop(host, None)
        else:
            self.delays[host] = theirs
        if theirs <= self.stale_after or behind.oldest > self.stale_after:
            return Cause.BACKLOG
        return Cause.CLOCK if by_clock else Cause.AGENT

    def _about(self, host: str, reported: datetime, age: Duration, cause: Cause, behind: Backlog) -> str:
        more = f" ({behind})" if cause is Cause.BACKLOG else ""
        return (
            f"status is behind: the report of {host} from {reported:%H:%M:%S}Z is {_clock(age)} old when it is "
            f"handled; {cause.label}: {cause.value}{more}"
        )

    def _warning(self, cause: Cause, age: Duration, sentence: str, now: Instant) -> LateReport | None:
        if not is_first(self._warned) and now - self._warned < self.warn_every:
            return None
        self._warned = now
        self.last = LateReport(cause, age, sentence)
        return self.last

    def _unclear(self, host: str, now: Instant) -> str | None:
        self.unparseable += 1
        if not is_first(self._puzzled) and now - self._puzzled < self.warn_every:
            return None
        self._puzzled = now
        return f"the report of {host} carries a time that cannot be understood, so its age is not known"


def _clock(age: Duration) -> str:
    seconds = int(age.total_seconds())
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
