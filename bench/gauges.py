"""The instruments: CPU of a process, peak of its memory, and how long its event loop did not turn."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

TICK_S = 0.002

CPU_STEP_S = 1 / os.sysconf("SC_CLK_TCK")
"""The least that `cpu_s` of another process can tell from nothing."""


@dataclass(slots=True)
class Stopwatch:
    """Wall time and own CPU (user and system, all threads, not children) since it was made."""

    _wall: float = field(default_factory=time.perf_counter)
    _cpu: float = field(default_factory=time.process_time)

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._wall

    @property
    def cpu_s(self) -> float:
        return time.process_time() - self._cpu


@dataclass(slots=True)
class PeakMemory:
    """How far this process has grown above its resident memory at the time when this was made."""

    _before_kb: int = field(init=False)

    def __post_init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        self._before_kb = _status_kb("VmRSS")

    @property
    def growth_mb(self) -> float:
        return max(0, _status_kb("VmHWM") - self._before_kb) / 1024


def resident_mb() -> float:
    """Memory of this process that is in use now."""
    return _status_kb("VmRSS") / 1024


def _status_kb(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split(maxsplit=1)[0])


@dataclass(slots=True)
class LoopBlock:
    """The longest time for which the event loop did not get round to a timer that was due, because of this process:
    what the kernel gave to others meanwhile, while we were ready to run, is not counted."""

    max_s: float = 0.0

    @classmethod
    @asynccontextmanager
    async def watched(cls) -> AsyncIterator[LoopBlock]:
        block = cls()
        ticking = asyncio.create_task(block._tick())
        try:
            yield block
        finally:
            ticking.cancel()

    async def _tick(self) -> None:
        while True:
            before, waited = time.perf_counter(), waited_s()
            await asyncio.sleep(TICK_S)
            late = time.perf_counter() - before - TICK_S - (waited_s() - waited)
            self.max_s = max(self.max_s, late)


def waited_s() -> float:
    """How long this thread has been ready to run without running."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
