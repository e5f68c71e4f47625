"""Names and files of a lab: its hosts, and where its etcd, database, kernels and VIPs are.

Imported by every process of the lab and by commands that look for a lab, so it imports little.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.runtime.paths import write_atomically

SERVERS = ("ctl-1", "ctl-2")
WORKLOADS = ("web", "db", "cache")
DEFAULT_HOSTS = 6
"""Each host costs three processes: 85 MB, and two seconds of a core to start."""


def hosts(state: Path) -> tuple[str, ...]:
    """Return the hosts of this lab; an agent runs for each."""
    count = int(_host_count_file(state).read_text(encoding="ascii"))
    return tuple(f"r1-{number:02}" for number in range(1, count + 1))


def set_host_count(state: Path, count: int) -> None:
    """Fix the number of hosts of a new lab; an existing lab keeps its number."""
    state.mkdir(parents=True, exist_ok=True)
    if not _host_count_file(state).exists():
        write_atomically(_host_count_file(state), str(count).encode())


def _host_count_file(state: Path) -> Path:
    return state / "hosts"


def database(state: Path) -> str:
    """Return the URL of the lab's inventory."""
    return f"sqlite:///{state / 'inventory.db'}"


def etcd_folder(state: Path) -> Path:
    return state / "etcd"


def endpoint(state: Path) -> str | None:
    """Return the URL of the lab's etcd, which stays the same over restarts; None before its first start."""
    try:
        return f"http://127.0.0.1:{int((etcd_folder(state) / 'port').read_text(encoding='ascii'))}"
    except (OSError, ValueError):
        return None


def kernel_file(state: Path, host: str) -> Path:
    """Return the file that stands for that host's kernel."""
    return state / "kernels" / f"{host}.json"


def down_file(state: Path, host: str) -> Path:
    """Return the marker file: while it exists, that host's agent is not started again."""
    return state / "kernels" / f"{host}.down"


def vips_file(state: Path) -> Path:
    """Return the file that stands for the balancer's dataplane."""
    return state / "vips.json"


def namespaces_file(state: Path) -> Path:
    return state / "namespaces.json"


def namespaces(state: Path) -> Mapping[str, str]:
    """Return the system names of the network namespaces of a running lab; empty if its dataplanes are files."""
    try:
        return msgspec.json.decode(namespaces_file(state).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
