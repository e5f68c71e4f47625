"""Brake memory: the deletes of the brake's sliding minute, on disk, so that a restart does not begin with an empty one.

Without it, a process that is killed again and again deletes each time as many objects as the brake lets pass in one
minute. The deletes of a batch are written before it is applied: a process that dies in between counts too many rather
than too few. Those that failed are taken back. There is no fsync: a killed process loses nothing of what it wrote. The
file is in the runtime folder, because a reboot clears the kernel's state, and its times are of the boot clock. A disk
that takes no writes does not stop the reconciler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import structlog

from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Brake, Change
from holdfast.reconcile.change import K, V
from holdfast.runtime.paths import write_atomically

log = structlog.get_logger(__name__)

_NANOSECONDS = 1_000_000_000


class _Window(msgspec.Struct, frozen=True):
    boot: str
    """Id of the boot that the times belong to."""
    deletes: list[tuple[str, int, int]]
    """Kind, second since boot, and number of deletes."""


class BrakeMemory:
    """File in the runtime folder with the number of deletes of each kind and second."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._counts: Counter[tuple[str, int]] = Counter()
        self._failed = False

    def recall(self, brake: Brake[K, V], now: Instant) -> None:  # protection: C27
        """Let the brake of a new process count the deletes of the process before."""
        for kind, second, count in self._load():
            at = min(Instant(second * _NANOSECONDS), now)
            if count > 0 and now - at < brake.limits.window:
                self._counts[kind, second] += count
                brake.recall(kind, at, count)

    def add(self, brake: Brake[K, V], going: Iterable[Change[K, V]], now: Instant) -> Counter[str]:
        """Record the deletes that are about to be applied; returns how many of each kind the brake counts."""
        counts = brake.spent(going, now)
        self._save(counts, now, brake.limits.window)
        return counts

    def take_back(self, brake: Brake[K, V], counts: Counter[str], now: Instant) -> None:
        """Remove deletes that were not applied after all; `now` is the time at which they were added."""
        self._save(Counter({kind: -count for kind, count in counts.items()}), now, brake.limits.window)

    def _save(self, counts: Counter[str], now: Instant, window: Duration) -> None:
        if not counts:
            return
        second = now.ns // _NANOSECONDS
        for kind, count in counts.items():
            self._counts[kind, second] += count
        for old in [key for key, count in self._counts.items() if not count or key[1] < second - window.seconds]:
            del self._counts[old]
        deletes = [(kind, at, count) for (kind, at), count in self._counts.items()]
        try:
            write_atomically(self._path, msgspec.json.encode(_Window(self._boot, deletes)), sync=False)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.error(
                    "cannot save the deletes of the last minute; the brake forgets them at a restart",
                    path=str(self._path),
                    error=str(error),
                )
            self._failed = True

    def _load(self) -> Iterator[tuple[str, int, int]]:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Window)
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
            log.error("cannot read the deletes of the last minute", path=str(self._path), error=str(error))
            return
        if found.boot == self._boot:
            yield from found.deletes
