"""Files of one role: the runtime folder, which a reboot clears, and the state folder, which survives it."""

from __future__ import annotations

import os
import pwd
import stat
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

    def prepare(self, *, shared: bool = False) -> None:
        """Create both folders, accessible to this user and group only. With `shared`, every user may pass through the
        runtime folder to the control sockets, which check their callers; its files stay private."""
        for folder, setting in ((self.runtime, "paths.runtime"), (self.state, "paths.state")):
            try:
                folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
                _require_own(folder, setting)
                if shared and folder == self.runtime:
                    folder.chmod(_PASSABLE_FOLDER)
            except OSError as error:
                raise FolderError(
                    f"cannot create {folder} ({error.strerror}): set {setting} to a writable folder"
                ) from error
            if not os.access(folder, os.W_OK | os.X_OK):
                raise FolderError(f"cannot write to {folder}: set {setting} to a writable folder, or run as its owner")


_PRIVATE_FOLDER, _PASSABLE_FOLDER = 0o750, 0o755


def _require_own(folder: Path, setting: str) -> None:
    """Refuse a folder in which somebody else could replace the files that this process trusts."""
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise FolderError(
            f"{folder} belongs to {_user(found.st_uid)}, who could replace what is read from it: "
            f"set {setting} to another folder, or run as its owner"
        )
    writers = found.st_mode & (stat.S_IWOTH | (0 if found.st_gid == os.getegid() else stat.S_IWGRP))
    if writers:
        who = "every user" if writers & stat.S_IWOTH else "its group"
        raise FolderError(f"{who} may write to {folder}: run chmod go-w {folder}, or set {setting} to another folder")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


_OWN_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""For a new file: never one that is there already, and never through a link that somebody has left there."""


def open_new(path: Path, mode: int = 0o600) -> int:
    """Open a new file, in place of what a killed writer or a stranger left under that name."""
    path.unlink(missing_ok=True)
    return os.open(path, _OWN_FILE, mode)


def write_atomically(path: Path, content: bytes, mode: int = 0o600, *, sync: bool = True) -> None:
    """Replace a file so that it has either the old content or the new one, never a part. Without `sync` that holds for
    a process that is killed, not for a machine that loses power."""
    new = path.with_name(path.name + ".new")
    fd = open_new(new, mode)
    try:
        rest = memoryview(content)
        while rest:  # a disk that fills up accepts a part first
            rest = rest[os.write(fd, rest) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    new.replace(path)
    if sync:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
