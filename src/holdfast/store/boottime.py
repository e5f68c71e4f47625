"""The boot clock, the default `now` of the store's classes: it counts suspends and is never stepped."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.model.base.time import Instant

Now = Callable[[], Instant]


def boot_now() -> Instant:
    """Read CLOCK_BOOTTIME."""
    return Instant(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
