"""Rounds of killing an agent at any moment while its peers change: afterwards the kernel is what the inventory says."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.hosts import Fleet, gone, host, workload
from holdfast.testing.netns import network
from tests.e2e.hosts import Wanted, fleet

FIRST, PHANTOMS = 50, 12


@pytest.fixture(scope="module")
def stage() -> Iterator[Fleet]:
    with or_skip(network()) as net, fleet(net, "always", count=1) as made:
        yield made


class Peers:
    """Hosts that exist in the inventory only, each with an underlay address; and workloads that move between them."""

    def __init__(self, stage: Fleet, chance: random.Random) -> None:
        self._stage = stage
        self._chance = chance
        self._born = 0
        self.hosts: dict[str, int] = {"h1": 1}
        self.placed: dict[int, str] = {1: "h1"}
        for number in range(FIRST, FIRST + PHANTOMS):
            self._join(number)
            self._place(number, self._phantom())

    def change(self) -> None:
        """One of the things that happen in a fleet."""
        self._chance.choice([self._replace_a_host, self._move_a_workload, self._come_or_go])()

    def leave(self) -> None:
        """All of them."""
        for number in [one for one in self.placed if one != 1]:
            self._take(number)
        self._stage.change(*(gone(host(name, number)) for name, number in self.hosts.items() if name != "h1"))

    def _phantom(self) -> str:
        return self._chance.choice([name for name in self.hosts if name != "h1"])

    def _join(self, number: int) -> str:
        self._born += 1
        name = f"p{self._born}"
        self._stage.change(host(name, number))
        self.hosts[name] = number
        return name

    def _replace_a_host(self) -> None:
        """A host goes, and another has its address and its workloads at once."""
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
        number = self._chance.choice([one for one in self.placed if one != 1])
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


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_N1_after_every_kill_and_restart_the_kernel_is_what_the_inventory_says(stage: Fleet, rounds: int) -> None:
    seed = rounds
    chance = random.Random(seed)
    agent, peers = stage.agents["h1"], Peers(stage, chance)
    Wanted(agent, peers.hosts, peers.placed, vxlan=True).come()
    for _ in range(rounds):
        if chance.random() < 0.5:
            agent.kill()
        for _ in range(chance.randint(1, 4)):
            peers.change()
        time.sleep(chance.random())  # not for luck: the moment of the kill is what is tried
        if agent.process.alive:
            agent.kill()
        agent.start()
        Wanted(agent, peers.hosts, peers.placed, vxlan=True).come()
    peers.leave()
