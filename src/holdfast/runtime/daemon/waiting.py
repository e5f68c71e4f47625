"""Wait of a worker for a dependency: logged once per state, with its beginning and its duration."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.runtime.clock import Clock


class Waiting:
    """One wait, from the first state that is noted until `end`; the states in between are parts of it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state = ""
        self._since: Instant = NEVER

    def is_news(self, state: str) -> bool:
        """Note what the worker waits for now. True when that has changed, and should be logged."""
        self._since = self._since or self._clock.now()
        changed, self._state = state != self._state, state
        return changed

    def end(self) -> Mapping[str, str | float]:
        """End the wait and return its fields; none if there was no wait."""
        ended = self.fields()
        self._state, self._since = "", NEVER
        return ended

    def fields(self) -> Mapping[str, str | float]:
        """Fields of a log line: since when by the wall clock, and for how long."""
        if not self._since:
            return {}
        waited: Duration = self._clock.now() - self._since
        since = (self._clock.wall() - waited).isoformat(timespec="seconds")
        return {"since": since, "waited_s": round(waited.total_seconds(), 1)}
