"""Pause gate: holds every change while an operator has paused this place or the fleet, until resumed or expired.

A place whose intents are in the store holds its changes also while they cannot be read: an operator may have paused it
just before the store went away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic

from holdfast.model.base.time import Instant
from holdfast.model.control.intent import Intent
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile.change import Change, K, Op, V
from holdfast.reconcile.gate import Closed, Reason


class PauseReason(Reason):
    PAUSED = "an operator paused it"
    UNREAD = "operators' intents could not be read since the store was away"


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause in force, with its times on the boot clock of this machine."""

    intent: Intent
    since: Instant
    until: Instant | None = None

    @classmethod
    def of(cls, intent: Intent, wall: datetime, now: Instant) -> Pause:
        until = None if intent.until is None else now + (intent.until - wall)
        return cls(intent, now + (intent.since - wall), until)

    def holds(self, now: Instant) -> bool:
        return self.until is None or now < self.until

    @property
    def closed(self) -> Closed:
        opens = f"holdfast resume {self.intent.scope}" + ("" if self.until is None else ", or the end of the pause")
        return Closed("intent", PauseReason.PAUSED, self.since, opens, self.intent.sentence)


def everything(_scope: Scope, _key: object) -> bool:
    return True


@dataclass(slots=True)
class PauseGate(Generic[K]):
    """Holds the changes whose key is in the scope of a pause, as `covers` tells."""

    covers: Callable[[Scope, K], bool] = field(default=everything)
    pauses: tuple[Pause, ...] = ()
    unread_since: Instant | None = None
    """When the intents could not be read any more; None while they can."""

    def set(self, intents: Iterable[Intent], wall: datetime, now: Instant) -> None:
        """Replace all pauses."""
        self.pauses = tuple(Pause.of(intent, wall, now) for intent in intents)

    def is_paused(self, now: Instant) -> bool:
        """True when every key is paused now, not only those of a frontend."""
        return any(one.holds(now) and one.intent.scope.target is not ScopeKind.FRONTEND for one in self.pauses)

    def is_open(self, now: Instant) -> bool:
        return self.unread_since is None and not any(pause.holds(now) for pause in self.pauses)

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        for pause in self.pauses:
            if pause.holds(now) and self.covers(pause.intent.scope, change.key):
                return pause.closed
        if self.unread_since is not None:
            return Closed("intent", PauseReason.UNREAD, self.unread_since, "the next read of the intents")
        return None
