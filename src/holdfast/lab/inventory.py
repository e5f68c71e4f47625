"""The lab's inventory: which hosts and workloads its fleet has, and where the database is. Light: every process of the
lab reads this. Made and changed by `holdfast.lab.seeding`.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.runtime.worker import Spec

INVENTORY = Spec("inventory", "holdfast.lab.seeding:seed", once=True)
HOSTS = tuple(f"r1-{number:02}" for number in range(1, 13))
WORKLOADS = ("web", "db", "cache")


def database(state: Path) -> str:
    """The address of the lab's inventory."""
    return f"sqlite:///{state / 'inventory.db'}"
