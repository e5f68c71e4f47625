"""Reads the configuration file and secret files. What they mean is decided in `holdfast.config`.

`load` never raises: a daemon that reloads keeps what it has when it gets `Rejected`. A secret is read where it is used,
through one open file: what was checked is what is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.config import Flag, Layer, Loaded, Origin, Problem, Rejected, Source, resolve
from holdfast.config.document import LARGEST
from holdfast.config.text import CREDENTIAL, quote

DEFAULT_FILE = "/etc/holdfast/holdfast.yaml"

_LARGEST_SECRET = 64 * 1024


class SecretRefused(Exception):
    """A secret cannot be had. The message is one sentence: which file, what is wrong, what to do."""


def load(path: str | None, environ: Mapping[str, str], flags: Sequence[Flag] = ()) -> Loaded | Rejected:
    """The effective configuration. Without a `path`, HOLDFAST_CONFIG names the file, else it is the default one, which
    alone need not exist."""
    named = path or environ.get("HOLDFAST_CONFIG")
    try:
        source: Source | None = Source(named or DEFAULT_FILE, _read(Path(named or DEFAULT_FILE), LARGEST + 1))
    except FileNotFoundError as error:
        if named:
            return _unreadable(named, error)
        source = None
    except (OSError, ValueError) as error:
        return _unreadable(named or DEFAULT_FILE, error)
    return resolve(source, environ, flags)


def _unreadable(name: str, error: OSError | ValueError) -> Rejected:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    origin = Origin(Layer.FILE, quote(name)[1:-1])
    return Rejected((Problem(origin, "", f"cannot be read: {why}"),), unreadable=True)


def file_path(value: str, environ: Mapping[str, str]) -> Path:
    """The file that a `…_file` field names: a path, or `credential:NAME` in the folder that systemd made for us."""
    if not value.startswith(CREDENTIAL):
        return Path(value)
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise SecretRefused(
            f"{value} cannot be read: systemd gave this process no credentials, "
            f"add LoadCredential={value.removeprefix(CREDENTIAL)}:… to its unit"
        )
    return Path(folder) / value.removeprefix(CREDENTIAL)


def read_secret(value: str, environ: Mapping[str, str]) -> str:
    """The secret in the file that a `…_file` field names, without the line break at its end."""
    path = file_path(value, environ)
    try:
        data = _read(path, _LARGEST_SECRET + 1, secret=True)
        text = data.decode()
    except UnicodeDecodeError:
        raise SecretRefused(f"{path} is not text: write the secret into it as UTF-8") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise SecretRefused(f"{path} cannot be read: {why}") from None
    if len(data) > _LARGEST_SECRET:
        raise SecretRefused(f"{path} is larger than {_LARGEST_SECRET // 1024} KiB, too large for a secret")
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        raise SecretRefused(f"{path} is empty: write the secret into it")
    return secret


def _read(path: Path, most: int, *, secret: bool = False) -> bytes:
    # Without O_NONBLOCK the open of a FIFO would wait for a writer, for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if secret and status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise ValueError(f"every user of this machine could read or change it, run chmod 0600 {path}")
        return file.read(most)
