"""The sheet at the foot of each worker's bed: what the supervisor did for it, for others to read on the board."""

from __future__ import annotations

import msgspec

from holdfast.config.sections.pulse import Pulse as Bounds
from holdfast.model.base.time import NEVER, Instant
from holdfast.runtime.care import Care
from holdfast.runtime.pulse import Verdict


class Sheet(msgspec.Struct, frozen=True):
    phase: str
    verdict: str
    started: Instant = NEVER
    restarts: int = 0
    """In the last 24 hours."""
    crash_looping: bool = False
    trouble: str = ""
    """The last trouble, in a word: hung, stalled, …"""
    evidence: str = ""
    trouble_at: Instant = NEVER
    back_at: Instant = NEVER

    @classmethod
    def of(cls, care: Care, verdict: Verdict, bounds: Bounds, now: Instant) -> Sheet:
        trouble = care.trouble
        return cls(
            phase=care.phase.value,
            verdict=verdict.name.lower(),
            started=care.started,
            restarts=len(care.restarts),
            crash_looping=care.crash_looping(bounds, now),
            trouble=trouble.verdict.value if trouble else "",
            evidence=trouble.evidence[:200] if trouble else "",
            trouble_at=trouble.at if trouble else NEVER,
            back_at=(trouble.back or NEVER) if trouble else NEVER,
        )
