"""Reads the configuration file and secret files; `holdfast.config` decides what they mean.

`load` never raises: a daemon that reloads keeps its configuration when it gets `ConfigRejected`. A secret is checked
and read through one open file, so that what was checked is what is read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from holdfast.config import ConfigFile, ConfigProblem, ConfigRejected, FlagValue, Layer, Loaded, Origin, resolve
from holdfast.config.loading.yaml import LARGEST
from holdfast.config.schema.scalars import CREDENTIAL, printable
from holdfast.model.base.time import NEVER, Duration, Instant

DEFAULT_FILE = "/etc/holdfast/holdfast.yaml"
PARTS = "balancer.d"
"""Folder beside the configuration file, with more files of health checks, backends and frontends."""
SETTLING = Duration(seconds=1)

_LARGEST_SECRET = 64 * 1024


class SecretRefused(Exception):
    """A secret cannot be read. The message says which file, what is wrong and what to do."""


def load(path: str | None, environ: Mapping[str, str], flags: Sequence[FlagValue] = ()) -> Loaded | ConfigRejected:
    """Return the effective configuration. Without a `path`, HOLDFAST_CONFIG names the file; else it is the default
    file, the only one that may be missing. Files in `balancer.d` beside it are added."""
    named = path or environ.get("HOLDFAST_CONFIG")
    reading = named or DEFAULT_FILE
    parts: list[ConfigFile] = []
    try:
        source: ConfigFile | None = ConfigFile(reading, _read(Path(reading), LARGEST + 1))
    except FileNotFoundError as error:
        if named:
            return _unreadable(named, error)
        source = None
    except (OSError, ValueError) as error:
        return _unreadable(reading, error)
    try:
        for part in part_files(reading):
            reading = str(part)
            parts.append(ConfigFile(reading, _read(part, LARGEST + 1)))
    except NotYaml as error:
        return ConfigRejected((ConfigProblem(Origin(Layer.FILE, printable(error.name)), "", str(error)),))
    except (OSError, ValueError) as error:
        return _unreadable(reading, error)
    return resolve(source, environ, flags, parts)


class NotYaml(Exception):
    """A file of `balancer.d/` whose name would have it ignored, although it looks like configuration."""

    def __init__(self, name: str) -> None:
        super().__init__("is not read, because its name does not end in .yaml: rename it")
        self.name = name


def part_files(file: str) -> list[Path]:
    """Files of the folder `balancer.d` beside the configuration file, in the order of their names.

    Hidden files and those of other endings are skipped: editors and package managers leave them there.
    """
    try:
        seen = sorted(path for path in (Path(file).parent / PARTS).iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    for path in seen:
        if path.suffix in (".yml", ".json"):
            raise NotYaml(str(path))
    return [path for path in seen if path.suffix == ".yaml"]


class FileChanges:
    """Notices changes of the configuration file and of `balancer.d/`, once they have settled."""

    def __init__(self, path: str | None, environ: Mapping[str, str]) -> None:
        self._file = path or environ.get("HOLDFAST_CONFIG") or DEFAULT_FILE
        self._known = self._last = self._version()
        self._since = NEVER

    def settled(self, now: Instant) -> bool:
        """True once after a change, when nothing has changed for a second: files are saved one after the other."""
        version = self._version()
        if version != self._last:
            self._last, self._since = version, now
        if version == self._known or now - self._since < SETTLING:
            return False
        self._known = version
        return True

    def _version(self) -> list[tuple[str, int, int, int]]:
        try:
            paths = [Path(self._file), *part_files(self._file)]
        except (NotYaml, OSError):
            paths = [Path(self._file), *(Path(self._file).parent / PARTS).glob("*")]
        found = []
        for path in paths:
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((str(path), status.st_ino, status.st_mtime_ns, status.st_size))
        return found


def _unreadable(name: str, error: OSError | ValueError) -> ConfigRejected:
    origin = Origin(Layer.FILE, printable(name))
    return ConfigRejected((ConfigProblem(origin, "", f"cannot be read: {_why(error)}"),), unreadable=True)


def file_path(value: str, environ: Mapping[str, str]) -> Path:
    """Return the file that a `…_file` field names: a path, or `credential:NAME` in the folder that systemd made."""
    if not value.startswith(CREDENTIAL):
        return Path(value)
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise SecretRefused(
            f"{value} cannot be read: systemd passed no credentials to this process; "
            f"add LoadCredential={value.removeprefix(CREDENTIAL)}:… to its unit"
        )
    return Path(folder) / value.removeprefix(CREDENTIAL)


def secret_file(value: str, environ: Mapping[str, str]) -> Path:
    """Return the path of a secret that another library opens, such as a TLS key, after the checks of `read_secret`."""
    path = file_path(value, environ)
    _read_secret(path, 0)
    return path


def read_secret(value: str, environ: Mapping[str, str]) -> str:
    """Return the secret in the file that a `…_file` field names, without its final line break."""
    path = file_path(value, environ)
    data = _read_secret(path, _LARGEST_SECRET + 1)
    if len(data) > _LARGEST_SECRET:
        raise SecretRefused(f"{path} is larger than {_LARGEST_SECRET // 1024} KiB: put only the secret into it")
    try:
        secret = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretRefused(f"{path} is not text: write the secret into it as UTF-8") from None
    if not secret:
        raise SecretRefused(f"{path} is empty: write the secret into it")
    return secret


def _read_secret(path: Path, most: int) -> bytes:
    try:
        with _open(path) as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IROTH | stat.S_IWOTH):
                raise SecretRefused(f"{path} is accessible to every user of this machine: run chmod o= {path}")
            return file.read(most)
    except (OSError, ValueError) as error:
        raise SecretRefused(f"{path} cannot be read: {_why(error)}") from None


def _read(path: Path, most: int) -> bytes:
    with _open(path) as file:
        return file.read(most)


def _open(path: Path) -> BinaryIO:
    # Without O_NONBLOCK opening a FIFO would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise ValueError("it is not a regular file")


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
