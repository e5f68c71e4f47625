"""Origin of the figures: the commit, and the machine at the start of the benchmark."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from holdfast.store.embedded import binary

ROOT = Path(__file__).resolve().parent.parent


def facts() -> dict[str, object]:
    """Return what every JSON line has besides its figures."""
    return {
        "commit": commit(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "etcd": etcd_version(),
    }


def commit() -> str | None:
    """Return the measured commit; with `+changes` if src or bench differ from it."""
    head = _output("git", "rev-parse", "--short=12", "HEAD")
    if not head:
        return None
    return f"{head}+changes" if _output("git", "status", "--porcelain", "--", "src", "bench") else head


def etcd_version() -> str | None:
    """Return the version of the etcd that a benchmark would start; None if there is none."""
    try:
        version = binary.read_version(_output(str(binary.find()), "--version"))
    except binary.NoEtcd:
        return None
    return ".".join(map(str, version)) if version else None


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""  # a copy without git, or a machine without the tool
    return done.stdout.strip() if done.returncode == 0 else ""
