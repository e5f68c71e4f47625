"""Find the etcd binary to run, and refuse one that is too old.

Before 3.4.22, and from 3.5.0 to 3.5.5, a member can lose or corrupt data when it is killed or its disk is slow.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

Version = tuple[int, int, int]

PLACES = (Path("/usr/sbin/etcd"), Path(".tools/usr/bin/etcd"), Path(".tools/usr/sbin/etcd"))
_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_PREFIX = "etcd Version: "


class NoEtcd(Exception):
    """No etcd can be started. The message tells the operator what to do."""


def objection(version: Version) -> str | None:
    """Return why an etcd of this version is refused, or None."""
    name = ".".join(map(str, version))
    if version < (3, 4, 22):
        return f"etcd {name} is too old; use 3.4.22 or newer"
    if (3, 5, 0) <= version < (3, 5, 6):
        return f"etcd {name} can lose data when it is killed; use 3.5.6 or newer"
    return None


def read_version(text: str) -> Version | None:
    """Parse the output of `etcd --version`."""
    _, found, version = text.partition(_PREFIX)
    return parse_version(version) if found else None


def parse_version(text: str) -> Version | None:
    """Parse the version at the beginning of a text such as 3.4.23 or 3.6.0-rc.1."""
    found = _NUMBERS.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def find(explicit: Path | None = None, places: Sequence[Path] = PLACES, *, for_trying_out: bool = False) -> Path:
    """Return the etcd to run: `explicit`, else from PATH, else from where packages install it. Raises `NoEtcd`."""
    binary = _locate(explicit, places)
    try:
        shown = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise NoEtcd(f"{binary} cannot be run ({error}); name another etcd") from error
    version = read_version(shown.stdout)
    if version is None:
        raise NoEtcd(f"{binary} is not etcd: it prints no etcd version; name another etcd")
    refusal = objection(version)
    if refusal is not None and for_trying_out and version >= (3, 5, 0):
        log.warning("embedded etcd is for demos only", etcd=str(binary), why=refusal)
    elif refusal is not None:
        raise NoEtcd(f"{binary}: {refusal}")
    return binary


def _locate(explicit: Path | None, places: Sequence[Path]) -> Path:
    if explicit is not None:
        if not explicit.is_file():
            raise NoEtcd(f"{explicit} does not exist; name the etcd binary, or install etcd-server")
        return explicit.absolute()
    on_path = shutil.which("etcd")
    if on_path is not None:
        return Path(on_path)
    for place in places:
        if place.is_file():
            return place.absolute()
    raise NoEtcd("no etcd was found; install the package etcd-server (3.4.22 or newer), or run make up")
