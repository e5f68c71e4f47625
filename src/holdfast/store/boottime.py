"""The boot clock, which counts suspends and is never stepped: the default `now` of everything in the store."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.model.base.time import Instant

Now = Callable[[], Instant]


def boot_now() -> Instant:
    """This moment on this machine's boot clock."""
    return Instant(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
