"""The lab's inventory: which hosts and workloads its fleet has, and where the database is. Light: every process of the
lab reads this. Made and changed by `holdfast.lab.fleet.seed`.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.runtime.daemon.worker import Spec
from holdfast.runtime.paths import write_atomically

INVENTORY = Spec("inventory", "holdfast.lab.fleet.seed:seed", once=True)
FIRST_HOSTS = 6
"""Each costs three processes: 85 MB, and two seconds of a core to start."""
WORKLOADS = ("web", "db", "cache")


def hosts(state: Path) -> tuple[str, ...]:
    """The hosts of this lab; an agent runs for each."""
    return tuple(f"r1-{number:02}" for number in range(1, int(_file(state).read_text(encoding="ascii")) + 1))


def begin(state: Path, count: int) -> None:
    """Says how many hosts a lab has; one that was there before keeps its number."""
    state.mkdir(parents=True, exist_ok=True)
    if not _file(state).exists():
        write_atomically(_file(state), str(count).encode())


def _file(state: Path) -> Path:
    return state / "hosts"


def database(state: Path) -> str:
    """The address of the lab's inventory."""
    return f"sqlite:///{state / 'inventory.db'}"
