"""Network namespaces for tests: machines with network stacks of their own, joined by veth pairs, on one kernel.

    with network() as net:
        a, b = net.namespace("a"), net.namespace("b")
        net.cable(a, b, "10.0.0.1/24", "10.0.0.2/24")
        a.run("ping", "-c1", "10.0.0.2")

Nothing outside the namespaces is touched. Their names carry the run that they belong to; the next run removes what a
killed run left behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.testing.real.processes import Process, Unavailable, abandoned, folder, owner_tag, run, tool

_NAMES = Path("/run/netns")
_FORWARD = "for knob in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 1 >/proc/sys/net/$knob; done"


class Namespace:
    """One network stack. `name` is the test's name for it, `system_name` the kernel's."""

    def __init__(self, name: str, system_name: str, home: Path) -> None:
        self.name = name
        self.system_name = system_name
        self._home = home
        self._started = 0

    def command(self, *words: str) -> Sequence[str]:
        """Return the command line that runs a program in this namespace."""
        return [tool("ip"), "netns", "exec", self.system_name, *words]

    def run(self, *words: str) -> str:
        """Run a program in this namespace to its end and return its output."""
        return run(self.command(*words))

    def batch(self, commands: Sequence[str], program: str = "ip") -> None:
        """Run many commands of `ip`, or `bridge`, in one process."""
        script = self._home / f"{self.name}.batch"
        script.write_text("".join(f"{command}\n" for command in commands))
        run([tool(program), "-netns", self.system_name, "-batch", str(script)])

    def forward(self) -> None:
        """Make it a router, for both families."""
        self.run("sh", "-c", _FORWARD)

    def bring_up(self, device: str, *addresses: str) -> None:
        """Assign addresses to a device and set it up."""
        self.batch([*(add_address(one, device) for one in addresses), f"link set {device} up"])

    def start(self, *words: str) -> Process:
        """Start a program in this namespace; it ends with the test's process at the latest."""
        self._started += 1
        process = Process(self.command(*words), log=self._home / f"{self.name}-{self._started}.log")
        process.start()
        return process


def add_address(address: str, device: str) -> str:
    """Return the `ip` command. Without nodad an IPv6 address is tentative, and unusable, for its first second."""
    return f"address add {address} dev {device}{' nodad' if ':' in address else ''}"


def join(one: Namespace, device: str, other: Namespace, other_device: str) -> None:
    """Connect two namespaces with a veth pair."""
    ends = ["netns", one.system_name, "type", "veth", "peer", "name", other_device, "netns", other.system_name]
    run([tool("ip"), "link", "add", device, *ends])


class NamespaceNetwork:
    """The namespaces and veth pairs of one test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        """A folder that is removed with the network."""
        self._tag = f"{owner_tag()}{home.name.rpartition('-')[2]}"
        self.namespaces: list[Namespace] = []
        self._cables = 0

    def namespace(self, name: str) -> Namespace:
        """Create a namespace with its loopback up."""
        made = Namespace(name, f"{self._tag}-{name}", self.home)
        run([tool("ip"), "netns", "add", made.system_name])
        self.namespaces.append(made)
        made.bring_up("lo")
        return made

    def cable(self, one: Namespace, other: Namespace, one_address: str, other_address: str) -> str:
        """Connect two namespaces and assign an address at each end; return the device, named alike at both ends."""
        device = f"veth{self._cables}"
        self._cables += 1
        join(one, device, other, device)
        one.bring_up(device, one_address)
        other.bring_up(device, other_address)
        return device

    def remove(self) -> None:
        for made in self.namespaces:
            run([tool("ip"), "netns", "delete", made.system_name])


@contextlib.contextmanager
def network() -> Iterator[NamespaceNetwork]:
    """Make an empty network to put namespaces into; it is removed with the block. Raises `Unavailable`."""
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    _check_supported()
    sweep()
    with folder() as home:
        made = NamespaceNetwork(home)
        try:
            yield made
        finally:
            made.remove()


def sweep() -> None:
    """Remove the namespaces of finished runs."""
    for left in _NAMES.glob("*"):
        if abandoned(left.name):
            with contextlib.suppress(RuntimeError):  # another run may be sweeping at the same time
                run([tool("ip"), "netns", "delete", left.name])


def _check_supported() -> None:
    tool("ip")
    try:
        run([tool("unshare"), "--net", "true"])
    except RuntimeError as refused:
        raise Unavailable(f"network namespaces cannot be made here: {refused}") from refused
