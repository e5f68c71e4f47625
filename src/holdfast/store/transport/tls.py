"""TLS context for connections to the members, rebuilt when one of its files changes.

Certificates are rotated under running processes (C54): a new connection uses the files as they are now, and an open one
keeps working with what it was made with. Files are replaced one after the other, and not always atomically: as long as
they do not fit together, the last context that did stays in use, and the log says why.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.store.api import StoreRefused

CHECK_EVERY = Duration(seconds=10)
"""Time between two looks at the files of a process that needs no new connection: an operator who wrote a bad file must
see that now, not when the last connection breaks."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of CA, client certificate and key; without a CA the ones that the system trusts."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def version(self) -> list[list[int]]:  # protection: C54
        """Return a value that differs once a file was replaced or rewritten."""
        return [_version(path) for path in (self.ca, self.cert, self.key) if path is not None]

    def load(self) -> ssl.SSLContext:
        """Raises `StoreRefused` when a file is unusable."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise StoreRefused(f"store.ca_file {self.ca} is not a readable CA certificate ({error})") from error
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except (OSError, ssl.SSLError) as error:
                raise StoreRefused(
                    f"store.cert_file {self.cert} and store.key_file {self.key} are not a usable pair ({error})"
                ) from error
        return context


def _version(path: Path) -> list[int]:
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_ino, found.st_mtime_ns, found.st_size]


@dataclass(slots=True)
class TlsContext:
    """The context for new connections. Raises `StoreRefused` at the start when a file is unusable, and never later."""

    files: TlsFiles
    _context: ssl.SSLContext = field(init=False)
    _loaded: list[list[int]] = field(init=False)
    _refused: str = ""
    _checked: Instant = NEVER

    def __post_init__(self) -> None:
        self._loaded = self.files.version()
        self._context = self.files.load()

    def current(self) -> ssl.SSLContext:
        """Return the context of the files as they are, or of the last ones that fitted together."""
        version = self.files.version()
        if version == self._loaded:
            return self._context
        try:
            self._context = self.files.load()
        except StoreRefused as error:
            if str(error) != self._refused:
                log.error("cannot load the changed TLS files; using the previous ones", why=str(error))
            self._refused = str(error)
            return self._context
        self._loaded, self._refused = version, ""
        log.info("TLS files changed; new connections use them", **_names(self.files))
        return self._context

    def check(self, now: Instant) -> None:
        """Look at the files every `CHECK_EVERY`."""
        if now - self._checked >= CHECK_EVERY:
            self._checked = now
            self.current()


def _names(files: TlsFiles) -> dict[str, str]:
    named = {"ca_file": files.ca, "cert_file": files.cert, "key_file": files.key}
    return {name: str(path) for name, path in named.items() if path is not None}
