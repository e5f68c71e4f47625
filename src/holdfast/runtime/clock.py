"""Clocks: the boot clock for ages and deadlines, the wall clock for timestamps that cross machines.

CLOCK_BOOTTIME counts suspends and is shared by all processes of a machine, so that one process can judge the age of
what another wrote. Nothing that decides reads a clock itself; it is handed an `Instant`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from holdfast.model.base.time import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """This machine's boot clock."""
        ...

    def wall(self) -> datetime:
        """The time of day, aware. Never subtracted from another machine's to get an age."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        return Instant(time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def wall(self) -> datetime:
        return datetime.now(UTC)
