"""Detects stale reports and attributes the delay: our backlog, this server, the host's clock, or the agent.

A live report that is more than `stale_after` old causes a warning, at most once per `warn_every`, and the first time
always (C6). Never during a snapshot: reports in a list may be old (C8). A report without a time is skipped, one with an
unparseable time causes a warning. The causes, in the order in which they are tried:

1. The change waited for us: our backlog. Where our backlog alone is that old, it is the cause.
2. More than half of the hosts are late by about as much: our own clock is off, or our watch delivered late (C51). So
   many hosts are not wrong together, and each of them would be blamed in turn. It takes three hosts to tell.
3. What is left stays the same from report to report: the offset of the host's clock.
4. The rest is the agent's own delay.

A difference between two clocks is never mistaken for a backlog.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.agent_status import Unclear

NOTHING = Duration(0)
STEADY = Duration(seconds=5)
"""Offsets of one host that differ by less are equal: times are whole seconds, and reports take a moment."""
OFF = Duration(seconds=10)
"""Offset from which on a clock is reported as off."""
MANY = 3
"""Hosts that it takes to tell our own clock or watch from that of a host."""
RENEWED = Duration(seconds=90)
"""A live agent reports within this time: the silence of a host is normal up to here, and lateness beyond."""


class Cause(Enum):
    """Cause of an old report."""

    BACKLOG = "our backlog"
    SERVER = "this server's clock is off, or its watch was late: most hosts are late by as much"
    CLOCK = "the host's clock is off"
    AGENT = "the agent reported late, or its clock offset is not known yet"

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Backlog:
    """Our own backlog: revisions of the store, waiting objects, and the age of the oldest of them."""

    revisions: int = 0
    waiting: int = 0
    oldest: Duration = NOTHING

    def __str__(self) -> str:
        waiting = f"{self.waiting:,} objects waiting, the oldest for {_clock(self.oldest)}"
        return f"{self.revisions:,} revisions behind, {waiting}"


@dataclass(frozen=True, slots=True)
class LateReport:
    """Warning. `age` is by the host's clock, or how long the oldest change has waited."""

    cause: Cause
    age: Duration
    sentence: str


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Offset of a host's clock behind ours, by its fresh reports; known once two of them agree."""

    by: Duration
    agreed: bool = False

    def after(self, by: Duration) -> ClockOffset:
        return ClockOffset(by, abs(by - self.by) <= STEADY)


def is_first(last: Instant) -> bool:  # protection: C6
    """C6: on a machine that was just started, "never" is not "five minutes ago"."""
    return not last


def is_judged(live: bool) -> bool:  # protection: C8
    """C8: reports of a snapshot may be old, so only live ones are judged."""
    return live


def is_shared(late: Duration, fleet: Sequence[Duration]) -> bool:  # protection: C51
    """Return True if more than half of the hosts are late by about as much. `fleet` is the lateness of all, sorted."""
    about = min(RENEWED + STEADY, late / 2)
    alike = bisect_right(fleet, late + about) - bisect_left(fleet, late - about)
    return len(fleet) >= MANY and 2 * alike > len(fleet)


def _alone() -> Sequence[Duration]:
    return ()


@dataclass(slots=True)
class Staleness:
    """Judges the reports of one worker. Wall-clock times are arguments; none is read here."""

    stale_after: Duration = Duration(seconds=300)
    warn_every: Duration = Duration(seconds=300)
    offsets: dict[str, ClockOffset] = field(default_factory=dict)
    delays: dict[str, Duration] = field(default_factory=dict)
    """Delay of the agents whose last report was old by their own fault."""
    counted: dict[Cause, int] = field(default_factory=lambda: dict.fromkeys(Cause, 0))
    unparseable: int = 0
    last: LateReport | None = None
    """The last warning."""
    _heard: dict[str, Instant] = field(default_factory=dict)
    """When the last report of a host came; not known of those that only a list has shown."""
    _warned: Instant = NEVER
    _warned_unparseable: Instant = NEVER

    def heard(self, hosts: Iterable[str], now: Instant) -> None:
        """Note that live reports of these hosts have come."""
        self._heard.update(dict.fromkeys(hosts, now))

    def lateness(
        self, reports: Iterable[tuple[str, datetime | Unclear]], wall: datetime, now: Instant
    ) -> Sequence[Duration]:
        """Lateness of the last report of every host, sorted: its age, without the time since it came."""
        heard = self._heard.get
        return sorted(
            wall - reported - min(RENEWED, now - heard(host, NEVER))
            for host, reported in reports
            if isinstance(reported, datetime)
        )

    def report(
        self,
        host: str,
        reported: datetime | Unclear,
        *,
        live: bool,
        behind: Backlog,
        wall: datetime,
        now: Instant,
        fleet: Callable[[], Sequence[Duration]] = _alone,
    ) -> LateReport | Unclear | None:
        """Judge a report that is handled now. Returns what to warn about, at most once per `warn_every`.

        `fleet` returns the lateness of all hosts; it is called only for a report that is stale.
        """
        if not is_judged(live) or reported is Unclear.MISSING:
            return None
        if isinstance(reported, Unclear):
            return self._unparseable_time(now)
        age = wall - reported
        self._record_offset(host, age, behind)
        if age <= self.stale_after:
            self.delays.pop(host, None)
            return None
        cause = self._cause(host, age, behind, fleet)
        self.counted[cause] += 1
        return self._warning(cause, age, self._about(host, reported, age, cause, behind), now)

    def waiting(self, behind: Backlog, now: Instant) -> LateReport | None:
        """Warn when a change has waited for too long, also where nothing is handled at all."""
        if behind.oldest <= self.stale_after:
            return None
        sentence = f"status is behind, {Cause.BACKLOG.value}: {behind}"
        return self._warning(Cause.BACKLOG, behind.oldest, sentence, now)

    def forget(self, host: str) -> None:
        for known in self.offsets, self.delays, self._heard:
            known.pop(host, None)

    def begin(self) -> None:
        """Begin a new term: agents may have been replaced meanwhile, so earlier offsets do not count."""
        for known in self.offsets, self.delays, self._heard:
            known.clear()

    def own_offset(self) -> Duration:
        """Offset of our own clock ahead of most hosts; 0 while it is small, or too few of them agree."""
        known = sorted(offset.by for offset in self.offsets.values() if offset.agreed)
        if len(known) < MANY:
            return NOTHING
        middle = known[len(known) // 2]
        alike = bisect_right(known, middle + STEADY) - bisect_left(known, middle - STEADY)
        return middle if abs(middle) > OFF and 2 * alike > len(known) else NOTHING

    def skews(self) -> Mapping[str, Duration]:
        """Offsets of hosts' clocks ahead of ours, as far as they are known and large. What most hosts have in common is
        the offset of our own clock, and no fault of theirs."""
        own = self.own_offset()
        known = self.offsets.items()
        return {host: own - offset.by for host, offset in known if offset.agreed and abs(offset.by - own) > OFF}

    def _record_offset(self, host: str, age: Duration, behind: Backlog) -> None:
        """Record the offset of a host's clock, from reports that did not wait in our backlog."""
        if behind.oldest > STEADY:
            return
        known = self.offsets.get(host)
        self.offsets[host] = ClockOffset(age) if known is None else known.after(age)

    def _cause(self, host: str, age: Duration, behind: Backlog, fleet: Callable[[], Sequence[Duration]]) -> Cause:
        theirs = age - behind.oldest
        self.delays.pop(host, None)
        if theirs <= self.stale_after or behind.oldest > self.stale_after:
            return Cause.BACKLOG
        if is_shared(theirs, fleet()):
            return Cause.SERVER
        offset = self.offsets.get(host)
        if offset is not None and offset.agreed and theirs - offset.by <= self.stale_after:
            return Cause.CLOCK
        self.delays[host] = theirs
        return Cause.AGENT

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

    def _unparseable_time(self, now: Instant) -> Unclear | None:
        self.unparseable += 1
        if not is_first(self._warned_unparseable) and now - self._warned_unparseable < self.warn_every:
            return None
        self._warned_unparseable = now
        return Unclear.UNPARSEABLE


def _clock(age: Duration) -> str:
    seconds = int(age.total_seconds())
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
