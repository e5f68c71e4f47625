"""The packages that `make dist` builds and signs, built once for all tests that install them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy import machine
from tests.house import repository

_INPUTS = (
    "src",
    "deploy",
    "tools",
    "tests/deploy/conftest.py",
    "pyproject.toml",
    "requirements.lock",
    "requirements-base.lock",
    "CHANGELOG.md",
)


def _digest() -> str:
    found = hashlib.sha256()
    for name in _INPUTS:
        place = repository.ROOT / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(repository.ROOT)} {path.stat().st_mode}\n".encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


KEY = "releases@example.net"


@contextmanager
def signing_key(public: Path) -> Iterator[dict[str, str]]:
    """Make a key for the block, and write its public half to a file. Without gpg nothing is signed."""
    if shutil.which("gpg") is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="gpg", dir="/tmp") as home:  # its sockets need a short path
        environment = {**os.environ, "GNUPGHOME": home}
        make = ["--passphrase", "", "--quick-generate-key", KEY, "ed25519", "sign"]
        for words in (make, ["--yes", "--armor", "--output", str(public), "--export", KEY]):
            subprocess.run(["gpg", "--batch", *words], env=environment, capture_output=True, check=True)
        yield {"GNUPGHOME": home, "SIGN": KEY}
        subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=True)


@pytest.fixture(scope="session")
def packages() -> Path:
    """The folder that `make dist SIGN=KEY` made of this tree, with the public key beside it as `.asc`. Built again only
    if what it is made of has changed."""
    if reason := machine.why_not():
        pytest.skip(reason)
    built = repository.ROOT / "build" / "dist"
    built.mkdir(parents=True, exist_ok=True)
    with (built / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = built / _digest()
        if not folder.exists():
            for old in built.glob("*/"):
                shutil.rmtree(old)
                old.with_suffix(".asc").unlink(missing_ok=True)
            making = folder.with_suffix(".part")
            command = ["sh", "tools/dist.sh"]
            with signing_key(folder.with_suffix(".asc")) as key:
                environment = {**os.environ, **key, "DIST": str(making)}
                done = subprocess.run(
                    command, cwd=repository.ROOT, env=environment, capture_output=True, text=True, check=False
                )
            assert done.returncode == 0, done.stderr
            making.rename(folder)
    return folder
