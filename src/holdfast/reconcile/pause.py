"""Pause gate: holds every change while an operator has paused this place, until resumed or until the pause expires."""

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
    """A pause that an operator asked for. `until` is None for a pause that lasts until it is resumed."""

    who: str
    why: str
    since: Instant
    until: Instant | None = None


def everything(_key: object) -> bool:
    return True


@dataclass(slots=True)
class PauseGate(Generic[K]):
    """Holds the changes whose key `covers` selects. `name` is the argument of `holdfast pause` and `resume`."""

    name: str
    covers: Callable[[K], bool] = field(default=everything)
    pause: Pause | None = None

    def is_paused(self, now: Instant) -> bool:
        """True when every key is paused now, not only some."""
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
        opens = f"holdfast resume {self.name}" + ("" if pause.until is None else ", or the end of the pause")
        return Closed("intent", PauseReason.PAUSED, pause.since, opens, f"{pause.who}: “{pause.why}”")
