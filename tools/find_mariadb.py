"""Finds a mariadbd to run, or unpacks one into .tools/mariadb without root, and prints its path.

Looked at in turn: PATH, /usr/sbin, .tools/mariadb; then Debian's packages, downloaded and unpacked into the clone. What
was unpacked brings its libraries along and is started through a wrapper that names them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FETCHED = Path(__file__).resolve().parent.parent / ".tools" / "mariadb"
PACKAGES = ("mariadb-server-core", "libaio1", "liburing2")


class NoMariaDb(Exception):
    """There is none; the message is one sentence."""


def find() -> Path | None:
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/local/sbin:/usr/sbin")
    if found:
        return Path(found)
    wrapper = FETCHED / "bin" / "mariadbd"
    return wrapper if wrapper.exists() else None


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise NoMariaDb(f"{command[0]}: {last}")


def fetch() -> Path:
    """Unpack Debian's packages. Where package lists are missing or old, private ones are read."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NoMariaDb("this is not a Debian family, and mariadbd is not installed")
    with tempfile.TemporaryDirectory(prefix="holdfast-mariadb-") as folder:
        scratch = Path(folder)
        lists, cache, root = scratch / "lists", scratch / "cache", scratch / "root"
        for each in (lists / "partial", cache / "archives" / "partial"):
            each.mkdir(parents=True)
        private = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User="]
        try:
            run("apt-get", "-qq", "download", *PACKAGES, cwd=scratch)
        except NoMariaDb:
            run("apt-get", "-qq", *private, "update", cwd=scratch)
            run("apt-get", "-qq", *private, "download", *PACKAGES, cwd=scratch)
        for package in scratch.glob("*.deb"):
            run("dpkg", "-x", package, root, cwd=scratch)
        return keep(root)


def keep(root: Path) -> Path:
    """Move it into place, the wrapper last: it stands for a complete one."""
    shutil.rmtree(FETCHED, ignore_errors=True)
    shutil.copytree(root, FETCHED, symlinks=True)
    libraries = ":".join(str(path) for path in sorted((FETCHED / "usr" / "lib").glob("*-linux-gnu")))
    wrapper = FETCHED / "bin" / "mariadbd"
    wrapper.parent.mkdir(exist_ok=True)
    (FETCHED / "share").symlink_to("usr/share")  # beside the wrapper's folder, where the tests look for its files
    program = FETCHED / "usr" / "sbin" / "mariadbd"
    wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{libraries}" exec "{program}" "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def main() -> int:
    try:
        print(find() or fetch())
    except (NoMariaDb, OSError) as why:
        print(f"make: {why}; install mariadb-server-core.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
