"""Tokens of the API: who may read from elsewhere, and who may change something. Only their hashes are stored.

A token is 256 random bits, so that a plain SHA-256 cannot be turned back. The file is read for every request: a revoked
token is refused at once. It belongs to the owner of its folder, the daemon's user, also where root writes it. That user
controls the folder, so that root follows no symbolic link in it. A lock on the folder makes writers wait in turn.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import msgspec

from holdfast.model.base.time import Moment

_PREFIX = "holdfast_"
FILE = "tokens.json"
"""In the state folder."""


class TokenRole(Enum):
    ADMIN = "admin"
    READ = "read"


class ApiToken(msgspec.Struct, frozen=True):
    """One token. `hash` is the SHA-256 of the secret."""

    name: str
    role: TokenRole
    hash: str
    created: Moment


class TokensUnreadable(Exception):
    """The file of the tokens cannot be read. The message says which and why."""


class TokenFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[ApiToken]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[ApiToken])
        except FileNotFoundError:
            return []
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise TokensUnreadable(f"{self.path} cannot be read ({error}): fix it, or delete it") from error

    def create(self, name: str, role: TokenRole) -> str:
        """Add a token, or replace the one of that name. Returns the secret, which is not kept."""
        secret = _PREFIX + secrets.token_urlsafe(32)
        one = ApiToken(name, role, _hash(secret), datetime.now(UTC).replace(microsecond=0))
        with self._locked() as folder:
            self._write(folder, [*(each for each in self.all() if each.name != name), one])
        return secret

    def revoke(self, name: str) -> bool:
        """Delete a token. Returns False if there is none of that name."""
        with self._locked() as folder:
            found = self.all()
            self._write(folder, [each for each in found if each.name != name])
        return any(each.name == name for each in found)

    def find(self, secret: str) -> ApiToken | None:
        """Return the token with that secret; compares with all of them in constant time."""
        given, match = _hash(secret), None
        for one in self.all():
            if hmac.compare_digest(one.hash, given):
                match = one
        return match

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Yield the descriptor of the folder, while no other process writes."""
        self.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(folder)

    def _write(self, folder: int, tokens: list[ApiToken]) -> None:
        new, owner = f"{self.path.name}.new", os.fstat(folder)
        if os.geteuid() not in (0, owner.st_uid):
            raise PermissionError(errno.EPERM, "only its owner and root may write here", str(self.path.parent))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)  # of a writer that was killed
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=folder), "wb") as file:
            if owner.st_uid != os.geteuid():
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(msgspec.json.encode(tokens))
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, self.path.name, src_dir_fd=folder, dst_dir_fd=folder)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
