"""Gauges: CPU of a process, its peak memory, and how long its event loop was blocked."""

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
"""Resolution of `cpu_s` of another process."""


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


def process_cpu_s(pid: int) -> float:
    """Return the CPU of a process and all its threads so far, with the scheduler's resolution."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


@dataclass(slots=True)
class PeakMemory:
    """Growth of this process above its resident memory at the time when this object was created."""

    _before_kb: int = field(init=False)

    def __post_init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self._before_kb = _status_kb("VmRSS")

    @property
    def growth_mb(self) -> float:
        return max(0, _status_kb("VmHWM") - self._before_kb) / 1024


def resident_mb() -> float:
    """Return the resident memory of this process."""
    return _status_kb("VmRSS") / 1024


def _status_kb(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split(maxsplit=1)[0])


@dataclass(slots=True)
class LoopBlock:
    """Longest time for which a due timer did not run because of this process.

    Time in which the process was ready to run and the kernel ran others is not counted.
    """

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
    """Return how long this thread has been ready to run without running."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
