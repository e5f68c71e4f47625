"""Clocks: the boot clock for ages and deadlines, the wall clock for timestamps that cross machines.

CLOCK_BOOTTIME counts suspends and is shared by all processes of a machine, so that one process can tell the age of
what another wrote. Code that decides never reads a clock; it is handed an `Instant`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from holdfast.model.base.time import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """Return the time of the boot clock of this machine."""
        ...

    def wall(self) -> datetime:
        """Return the time of day, timezone-aware. Never subtracted from the time of another machine to get an age."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        return Instant(time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def wall(self) -> datetime:
        return datetime.now(UTC)
