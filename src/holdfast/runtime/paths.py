"""Files of one role: the runtime folder, which a reboot clears, and the state folder, which survives it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


class FolderError(Exception):
    """A folder cannot be used; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class RolePaths:
    role: str
    runtime: Path
    state: Path

    @property
    def board(self) -> Path:
        return self.runtime / f"{self.role}.board"

    @property
    def config(self) -> Path:
        """Checked configuration that the workers read."""
        return self.runtime / f"{self.role}.json"

    @property
    def http(self) -> Path:
        """Address on which the daemon serves HTTP."""
        return self.runtime / f"{self.role}.http"

    @property
    def lock(self) -> Path:
        return self.runtime / f"{self.role}.lock"

    @property
    def decisions(self) -> Path:
        return self.state / "decisions"

    def deletes(self, worker: str) -> Path:
        """Deletes of a worker in the brake's sliding minute."""
        return self.runtime / f"{self.role}.{worker}.deletes"

    def socket(self, worker: str = "") -> Path:
        return self.runtime / (f"{self.role}.{worker}.sock" if worker else f"{self.role}.sock")

    def prepare(self) -> None:
        """Create both folders, accessible to this user and group only."""
        for folder, setting in ((self.runtime, "paths.runtime"), (self.state, "paths.state")):
            try:
                folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            except OSError as error:
                raise FolderError(
                    f"cannot create {folder} ({error.strerror}): set {setting} to a writable folder"
                ) from error
            if not os.access(folder, os.W_OK | os.X_OK):
                raise FolderError(f"cannot write to {folder}: set {setting} to a writable folder, or run as its owner")


def write_atomically(path: Path, content: bytes, mode: int = 0o640, *, sync: bool = True) -> None:
    """Replace a file so that it has either the old content or the new one, never a part. Without `sync` that holds for
    a process that is killed, not for a machine that loses power."""
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, mode)
    try:
        rest = memoryview(content)
        while rest:  # a disk that fills up accepts a part first
            rest = rest[os.write(fd, rest) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    new.replace(path)
