"""Network namespaces for tests: machines with network stacks of their own, joined by cables, on one kernel.

    with network() as net:
        a, b = net.namespace("a"), net.namespace("b")
        net.cable(a, b, "10.0.0.1/24", "10.0.0.2/24")
        a.run("ping", "-c1", "10.0.0.2")

Nothing outside the namespaces is touched. Their names carry the run they belong to; what a killed run left behind is
removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.testing.real.processes import Process, Unavailable, abandoned, folder, owner_tag, run, tool

_NAMES = Path("/run/netns")


class Namespace:
    """One network stack. `name` is the test's word for it, `system_name` the kernel's."""

    def __init__(self, name: str, system_name: str, home: Path) -> None:
        self.name = name
        self.system_name = system_name
        self._home = home
        self._started = 0

    def command(self, *words: str) -> Sequence[str]:
        """The command line that runs a program in here."""
        return [tool("ip"), "netns", "exec", self.system_name, *words]

    def run(self, *words: str) -> str:
        """Runs a program in here to its end; what it printed."""
        return run(self.command(*words))

    def batch(self, commands: Sequence[str], program: str = "ip") -> None:
        """Runs many commands of `ip`, or `bridge`, in here, as one program."""
        script = self._home / f"{self.name}.batch"
        script.write_text("".join(f"{command}\n" for command in commands))
        run([tool(program), "-netns", self.system_name, "-batch", str(script)])

    def start(self, *words: str) -> Process:
        """Starts a program in here; it ends with the test's process at the latest."""
        self._started += 1
        process = Process(self.command(*words), log=self._home / f"{self.name}-{self._started}.log")
        process.start()
        return process


class NamespaceNetwork:
    """The namespaces and cables of one test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        """A folder that goes with the network."""
        self._tag = f"{owner_tag()}{home.name.rpartition('-')[2]}"
        self.namespaces: list[Namespace] = []
        self._cables = 0

    def namespace(self, name: str) -> Namespace:
        """A new namespace with its loopback up."""
        made = Namespace(name, f"{self._tag}-{name}", self.home)
        run([tool("ip"), "netns", "add", made.system_name])
        self.namespaces.append(made)
        made.run("ip", "link", "set", "lo", "up")
        return made

    def cable(self, one: Namespace, other: Namespace, one_address: str, other_address: str) -> str:
        """Joins two namespaces with a veth pair; the name of the device, the same at both ends."""
        device = f"veth{self._cables}"
        self._cables += 1
        ends = ["netns", one.system_name, "type", "veth", "peer", "name", device, "netns", other.system_name]
        run([tool("ip"), "link", "add", device, *ends])
        for namespace, address in ((one, one_address), (other, other_address)):
            # Without nodad an IPv6 address is tentative, and unusable, for its first second.
            options = ["nodad"] if ":" in address else []
            namespace.run("ip", "address", "add", address, "dev", device, *options)
            namespace.run("ip", "link", "set", device, "up")
        return device

    def remove(self) -> None:
        for made in self.namespaces:
            run([tool("ip"), "netns", "delete", made.system_name])


@contextlib.contextmanager
def network() -> Iterator[NamespaceNetwork]:
    """An empty network to put namespaces into. Gone with the block."""
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    _try_one()
    sweep()
    with folder() as home:
        made = NamespaceNetwork(home)
        try:
            yield made
        finally:
            made.remove()


def sweep() -> None:
    """Removes the namespaces of runs that are over."""
    for left in _NAMES.glob("*"):
        if abandoned(left.name):
            with contextlib.suppress(RuntimeError):  # another run may be sweeping at the same time
                run([tool("ip"), "netns", "delete", left.name])


def _try_one() -> None:
    tool("ip")
    try:
        run([tool("unshare"), "--net", "true"])
    except RuntimeError as refused:
        raise Unavailable(f"network namespaces cannot be made here: {refused}") from refused
