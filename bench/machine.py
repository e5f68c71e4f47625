"""Where figures come from: the commit, and the machine as it was when the benchmark began."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from holdfast.store.embedded import binary

ROOT = Path(__file__).resolve().parent.parent


def facts() -> dict[str, object]:
    """What every JSON line says beside its figures."""
    return {
        "commit": commit(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "etcd": etcd_version(),
    }


def commit() -> str | None:
    """The commit that was measured; with `+changes` when what is measured was changed since."""
    head = _said("git", "rev-parse", "--short=12", "HEAD")
    if not head:
        return None
    return f"{head}+changes" if _said("git", "status", "--porcelain", "--", "src", "bench") else head


def etcd_version() -> str | None:
    """The version of the etcd that a benchmark would start, if there is one."""
    try:
        version = binary.read_version(_said(str(binary.find()), "--version"))
    except binary.NoEtcd:
        return None
    return ".".join(map(str, version)) if version else None


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""  # a copy without git, or a machine without the tool
    return done.stdout.strip() if done.returncode == 0 else ""
