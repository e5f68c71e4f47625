"""Hosts that exist in the inventory only, beside the fleet's real ones: they come, go and replace each other."""

from __future__ import annotations

import random

from holdfast.testing.real.hosts import Fleet, gone, host, workload

HOSTS = {"h1": 1, "h2": 2, "h3": 3}
PLACED = {1: "h1", 2: "h2", 3: "h3"}
"""The real ones, and their workloads."""
FIRST, PHANTOMS = 50, 12


class InventoryHosts:
    """Inventory-only hosts, each with an underlay address, and workloads that move between them."""

    def __init__(self, stage: Fleet, chance: random.Random) -> None:
        self._stage = stage
        self._chance = chance
        self._born = 0
        self.hosts = dict(HOSTS)
        self.placed = dict(PLACED)
        for number in range(FIRST, FIRST + PHANTOMS):
            self._join(number)
            self._place(number, self._phantom())

    def change(self) -> None:
        """Make one random change."""
        self._chance.choice([self._replace_a_host, self._move_a_workload, self._come_or_go])()

    def _phantom(self) -> str:
        return self._chance.choice([name for name in self.hosts if name not in HOSTS])

    def _join(self, number: int) -> str:
        self._born += 1
        name = f"p{self._born}"
        self._stage.change(host(name, number))
        self.hosts[name] = number
        return name

    def _replace_a_host(self) -> None:
        """Replace a host by another one with its address and its workloads."""
        old = self._phantom()
        moving = [number for number, name in self.placed.items() if name == old]
        for number in moving:
            self._take(number)
        number = self.hosts.pop(old)
        self._stage.change(gone(host(old, number)))
        new = self._join(number)
        for one in moving:
            self._place(one, new)

    def _move_a_workload(self) -> None:
        number = self._chance.choice([one for one in self.placed if one not in PLACED])
        self._take(number)
        self._place(number, self._phantom())

    def _come_or_go(self) -> None:
        number = self._chance.randrange(FIRST + PHANTOMS, FIRST + PHANTOMS + 6)
        if number in self.placed:
            self._take(number)
        else:
            self._place(number, self._phantom())

    def _take(self, number: int) -> None:
        self._stage.change(gone(workload(self.placed.pop(number), number)))

    def _place(self, number: int, name: str) -> None:
        self._stage.change(workload(name, number))
        self.placed[number] = name
