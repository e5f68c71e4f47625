"""Compaction policy: decides up to which revision the store's history is compacted. Pure.

The history of the last period stays, and at least 1,000 revisions. Two keys coordinate it, the same ones that Calico's
driver uses: `trigger` lives as long as a period, so a new leader does not begin a new period; `last` holds the revision
that was compacted, and its mod_revision is the store's revision at that check. A store whose revision is below that of
`last` was restored from a backup: nothing is compacted, and counting begins again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.model.base.time import NEVER, Duration, Instant

TRIGGER = b"/calico/compaction/v1/trigger"
LAST = b"/calico/compaction/v1/last"
KEPT = 1_000
MANY_HOSTS = 1_000


def period(every: Duration, when_large: Duration, hosts: int) -> Duration:
    """Time between two checks in a fleet of that many hosts; 0: never."""
    return min(every, when_large) if hosts > MANY_HOSTS else every


@dataclass(frozen=True, slots=True)
class Checked:
    """Last check as recorded in the store: the revision that was compacted, and the store's revision at that time."""

    compacted: int
    at: int


class Why(Enum):
    FIRST = "this is the first check, and the revision of a period ago is not known; the next check compacts"
    RESTORED = (
        "the store's revision is below the one recorded at the last check: it was restored from a backup, or the "
        "record is wrong; counting begins again"
    )
    FEW = "too few revisions to compact"
    DUE = "the history from before the last period is compacted"


@dataclass(frozen=True, slots=True)
class CompactionVerdict:
    why: Why
    upto: int = 0
    """Revision to compact at; 0: nothing is compacted."""


@dataclass(slots=True)
class LastCompaction:
    """One leader's memory of its last check: when it was, the store's revision, and whether that was recorded in the
    store. A full store records nothing; a store that has another record of that check was restored since."""

    at: Instant = NEVER
    revision: int = 0
    written: bool = False

    def due(self, every: Duration, now: Instant) -> bool:
        return not self.at or now - self.at >= every


def compaction_verdict(revision: int, last: Checked | None, noted: LastCompaction | None = None) -> CompactionVerdict:
    """Decide for a store at that revision; `noted` is the memory of the check a period ago."""
    stood, written = (noted.revision, noted.written) if noted is not None else (0, False)
    if last is None and not stood:
        return CompactionVerdict(Why.FIRST)
    then, compacted = (last.at, last.compacted) if last is not None else (0, 0)
    if max(then, compacted, stood) > revision:
        return CompactionVerdict(Why.RESTORED)
    if written:
        stood = 0  # the record counts: after a restore the store may have grown past its old revision
    upto = min(max(then, stood), revision - KEPT)
    return CompactionVerdict(Why.DUE, upto) if upto > compacted else CompactionVerdict(Why.FEW)


def read_last(value: bytes, mod_revision: int) -> Checked | None:
    """Parse the value of `last`; None where it is not a number, as before the first check."""
    text = value.strip()
    return Checked(int(text), mod_revision) if text.isdigit() and len(text) < 20 else None
