"""System calls of the journal, as a seam: tests make each one fail, or kill the process there."""

from __future__ import annotations

import os
from pathlib import Path


class Files:
    """Each method is one step: after it, the disk is in a state that `Journal.open` can handle."""

    def read(self, path: Path) -> bytes | None:
        """Return the whole file; None if there is none."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def create(self, path: Path) -> int:
        """Create an empty file to append to, in place of any old one."""
        path.unlink(missing_ok=True)
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        return os.open(path, flags, 0o600)

    def append_to(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
