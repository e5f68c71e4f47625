"""One machine of a simulated fleet: its boot id, its processes, its kernel, and its two folders on a real tmpfs.

A process here runs shipped code that asks the operating system for its pid, its host name, its files and its store;
`seams` answers for the machine that the process runs on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from holdfast.testing.sim.loop import CURRENT
from holdfast.testing.sim.nodes import Node
from holdfast.testing.sim.world import World

FIRST_PID = 1_000


class Kernel(Protocol):
    """Kernel of the machine: it outlives the agent that programs it."""

    objects: dict[Any, Any]

    def reattach(self) -> None:
        """Give the events to a new process."""
        ...


class Vips(Protocol):
    """Dataplane of the machine's balancer."""

    objects: dict[Any, Any]

    def restart(self) -> None:
        """Lose everything."""
        ...


class Stoppable(Protocol):
    """A daemon of the machine."""

    def kill(self) -> None: ...
    def start(self) -> None: ...


class SimMachine:
    """A machine that outlives its processes; a reboot takes its kernel and its runtime folder away."""

    def __init__(self, world: World, name: str, folder: Path, *, kernel: Kernel, vips: Vips, rate: float = 1.0) -> None:
        self.name = name
        self.world = world
        self.folder = folder / name
        self.first = world.node(name, rate=rate)
        """Brings the clocks; no process runs on it."""
        self.boots = 1
        self.kernel = kernel
        self.vips = vips
        self.database_is_away = False
        self.lost_calls = 0.0
        """Share of the calls to the database that are lost, half of them after they took effect (C47)."""
        self.disk_is_full = False
        self.tears_next_write = False
        """The next write of the journal is cut short, and its process dies with it."""
        self.daemons: list[Stoppable] = []
        self.nodes: dict[str, Node] = {}

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def node(self, name: str) -> Node:
        """Return the node of a process of this machine."""
        if name not in self.nodes:
            self.nodes[name] = self.first.beside(f"{self.name}/{name}")
        return self.nodes[name]

    def process(self, pid: int) -> Node | None:
        """Return the node whose live process has that pid."""
        running = (node for node in self.nodes.values() if node.process is not None and node.alive)
        return next((node for node in running if node.process and FIRST_PID + node.process.number == pid), None)

    def reboot(self) -> None:
        """Restart the machine: every process is gone, and so are the kernel and the runtime folders."""
        self.world.note(f"{self.name} reboots")
        for daemon in self.daemons:
            daemon.kill()
        self.boots += 1
        self.kernel.objects.clear()
        self.vips.restart()
        for runtime in self.folder.glob("*/run"):
            shutil.rmtree(runtime)
        for daemon in self.daemons:
            daemon.start()


def own_pid(real: Callable[[], int]) -> int:
    """Return the pid of the running process, simulated or not."""
    process = CURRENT.get()
    return real() if process is None else FIRST_PID + process.number
