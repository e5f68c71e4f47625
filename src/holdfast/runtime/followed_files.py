"""Files that a daemon uses while they are replaced under it, such as certificates and keys.

A file that was replaced takes effect with the next use. One that cannot be used any more (half-written, or a
certificate whose key has not been replaced yet) leaves the last good content in use, and is logged once.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from holdfast.runtime.config_file import SecretRefused, file_path, secret_file

log = structlog.get_logger(__name__)

T = TypeVar("T")


class FollowedFiles(Generic[T]):
    """Content of some files, loaded again when one of them changes. Raises what `load` raises, at the start only."""

    def __init__(self, files: Sequence[str], load: Callable[[], T]) -> None:
        self._paths = [file_path(file, os.environ) for file in files]
        self._load = load
        self._version = self._versions()
        self._content = load()

    def current(self) -> T:
        version = self._versions()
        if version != self._version:
            self._version = version
            try:
                self._content = self._load()
            except (OSError, SecretRefused) as error:
                log.error("cannot use a changed file; using the previous content", error=str(error))
        return self._content

    def _versions(self) -> list[tuple[int, int, int]]:
        return [_version(path) for path in self._paths]


def _version(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def present(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    """Make the context present this certificate."""
    context.load_cert_chain(file_path(cert_file, os.environ), secret_file(key_file, os.environ), _no_password)


def _no_password() -> str:
    """Refuse an encrypted key; without this, OpenSSL would ask on the terminal."""
    raise SecretRefused("the key is encrypted: store it without a passphrase")


def why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
