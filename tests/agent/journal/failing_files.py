"""Disks for journals: one that is full, one that counts calls, one that fails at a call."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from holdfast.agent.journal.files import Files


class FullDisk(Files):
    """Takes `room` more bytes, the last write in part, and then refuses."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().write(fd, data[: self.room])
        self.room -= written
        return written


class StuckDisk(FullDisk):
    """Full, and while it is stuck a partial write cannot be truncated either."""

    is_stuck = True

    def truncate(self, fd: int, size: int) -> None:
        if self.is_stuck:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(fd, size)


class CountingDisk(Files):
    """Counts the calls and the bytes written since it was last asked."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.calls["write"] += 1
        self.calls["bytes"] += len(data)
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        self.calls["sync"] += 1
        super().sync(fd)

    def asked(self) -> Counter[str]:
        calls, self.calls = self.calls, Counter()
        return calls


class FailingDisk(Files):
    """The first call of that name fails, after `then` has happened."""

    def __init__(self, call: str, number: int = errno.EIO) -> None:
        self.call = call
        self.number = number

    def sync(self, fd: int) -> None:
        self._fail("sync", lambda: Files.sync(self, fd))

    def rename(self, old: Path, new: Path) -> None:
        self._fail("rename", lambda: Files.rename(self, old, new))

    def create(self, path: Path) -> int:
        if self.call == "create":
            self.call = ""
            raise OSError(self.number, os.strerror(self.number))
        return super().create(path)

    def _fail(self, call: str, otherwise: Callable[[], None]) -> None:
        if call == self.call:
            self.call = ""
            raise OSError(self.number, os.strerror(self.number))
        otherwise()
