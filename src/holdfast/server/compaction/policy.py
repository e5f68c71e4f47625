"""Compaction: up to which revision the store's history may go. Pure.

The history of the last period stays, and at least 1,000 revisions. Two keys coordinate it, the same ones that Calico's
driver uses: `trigger` lives as long as a period, so whoever leads next does not begin anew; `last` holds the revision
that was compacted, and its mod_revision is where the store stood at that check. A store whose revision is below what
`last` says was restored: nothing is compacted, and counting begins again.
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
    """How often in a fleet of that many hosts; nothing: never."""
    return min(every, when_large) if hosts > MANY_HOSTS else every


@dataclass(frozen=True, slots=True)
class Checked:
    """What the store says of the last check: the revision that was compacted then, and where the store stood."""

    compacted: int
    at: int


class Why(Enum):
    FIRST = "this is the first check, so nothing is known of a period ago; the next one compacts"
    RESTORED = (
        "the store stands at a smaller revision than was written down at the last check: it was restored, or that note "
        "is wrong; counting begins again"
    )
    FEW = "there are too few revisions to part with"
    DUE = "the history from before the last period goes"


@dataclass(frozen=True, slots=True)
class CompactionVerdict:
    why: Why
    upto: int = 0
    """The revision to compact at; 0: nothing goes."""


@dataclass(slots=True)
class LastCompaction:
    """What one leader remembers of its last check: when it was, where the store stood, and whether the store took that
    down. One that is full does not; one that says something else of that check was restored since."""

    looked: Instant = NEVER
    stood: int = 0
    written: bool = False

    def due(self, every: Duration, now: Instant) -> bool:
        return not self.looked or now - self.looked >= every


def judge(revision: int, last: Checked | None, noted: LastCompaction | None = None) -> CompactionVerdict:
    """What to do at a store that stands at that revision; `noted` a period ago."""
    stood, written = (noted.stood, noted.written) if noted is not None else (0, False)
    if last is None and not stood:
        return CompactionVerdict(Why.FIRST)
    then, compacted = (last.at, last.compacted) if last is not None else (0, 0)
    if max(then, compacted, stood) > revision:
        return CompactionVerdict(Why.RESTORED)
    if written:
        stood = 0  # what the store says counts: after a restore it may have outgrown what it once was
    upto = min(max(then, stood), revision - KEPT)
    return CompactionVerdict(Why.DUE, upto) if upto > compacted else CompactionVerdict(Why.FEW)


def read_last(value: bytes, mod_revision: int) -> Checked | None:
    """What stands at `last`; None for what makes no sense, as for a first check."""
    text = value.strip()
    return Checked(int(text), mod_revision) if text.isdigit() and len(text) < 20 else None
