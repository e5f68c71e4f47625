"""The intent gate: an operator said pause. Everything is held, nothing is forgotten, and it can run out by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic

from holdfast.model.base.time import Instant
from holdfast.reconcile.change import Change, K, Op, V
from holdfast.reconcile.gate import Closed, Reason


class PauseReason(Reason):
    PAUSED = "an operator paused it"


@dataclass(frozen=True, slots=True)
class Pause:
    """Who asked for a pause, why, since when, and until when (None: until it is resumed)."""

    who: str
    why: str
    since: Instant
    until: Instant | None = None


def everything(_key: object) -> bool:
    return True


@dataclass(slots=True)
class PauseGate(Generic[K]):
    """Holds the changes that `covers` says the pause is about. `name` is what pause and resume call it."""

    name: str
    covers: Callable[[K], bool] = field(default=everything)
    pause: Pause | None = None

    def is_paused(self, now: Instant) -> bool:
        """Whether everything is paused now, not only some of it."""
        pause = self.pause
        return pause is not None and self.covers is everything and (pause.until is None or now < pause.until)

    def is_open(self, now: Instant) -> bool:
        return self.pause is None

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        pause = self.pause
        if pause is None or not self.covers(change.key):
            return None
        if pause.until is not None and now >= pause.until:
            return None
        opens = f"holdfast resume {self.name}" + ("" if pause.until is None else ", or the pause running out")
        return Closed("intent", PauseReason.PAUSED, pause.since, opens, f"{pause.who}: “{pause.why}”")
