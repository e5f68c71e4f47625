"""Network namespaces of a lab on the kernel: one each for the client, the balancer, the web servers and some hosts.

`created` makes the namespaces for as long as the lab runs and records their system names in a file; where that file
exists, the lab's workers use the namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape
from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.vip import BackendEntry, shown
from holdfast.config.sections.balancer import BalancerDataplaneSettings
from holdfast.lab.fleet import kernel_hosts, layout
from holdfast.netlink.netns import inside
from holdfast.runtime.paths import write_atomically
from holdfast.testing.real.anycast import AnycastSite
from holdfast.testing.real.netns import network
from holdfast.testing.real.processes import Unavailable

CLIENT = "client"
_UNSHARED = 'mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@"'


class NoNamespaces(Exception):
    """Network namespaces cannot be created here; the message says why and what to do."""


class Programmed(msgspec.Struct):
    """Entries that a dataplane holds for the web site."""

    writes: int
    """Changes made to the dataplane so far."""
    entries: dict[str, BackendEntry]
    """By ADDRESS:PORT."""
    ends: dict[str, int] = {}
    """Times that the flows of an entry were ended; empty where the dataplane does not count that."""


@contextlib.contextmanager
def created(state: Path) -> Iterator[None]:
    """Create the namespaces, with addresses and routes, and remove them after the block. Raises `NoNamespaces`."""
    state.mkdir(mode=0o750, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            net = stack.enter_context(network())
            AnycastSite(net)
            kernel_hosts.create(net)
        except Unavailable as missing:
            raise NoNamespaces(f"{missing}. To run a lab without namespaces: make up") from missing
        names = {one.name: one.system_name for one in net.namespaces}
        write_atomically(layout.namespaces_file(state), msgspec.json.encode(names))
        stack.callback(remove_record, state)
        yield


def remove_record(state: Path) -> None:
    """Remove the record of namespaces, also the one that a killed lab has left."""
    layout.namespaces_file(state).unlink(missing_ok=True)


def listening(namespace: str, address: tuple[str, int]) -> socket.socket:
    return inside(namespace, lambda: socket.create_server(address))


def command_in(namespace: str, command: Sequence[str]) -> Sequence[str]:
    """Return the command line that runs a command in that namespace."""
    return ["ip", "netns", "exec", namespace, *command]


def programmed(namespace: str) -> Programmed:
    """Read the entries and the generation counter of the kernel's table in that namespace."""

    def read() -> Programmed:
        entries = asyncio.run(_entries())
        with contextlib.closing(NftConnection(BalancerDataplaneSettings().table)) as kernel:
            return Programmed(kernel.generation(), entries)

    return inside(namespace, read)


def wipe(namespace: str) -> None:
    """Delete the balancer's table in that namespace without telling the balancer."""
    table = ["nft", "delete", "table", "inet", BalancerDataplaneSettings().table]
    inside(namespace, lambda: subprocess.run(table, check=True, capture_output=True))  # noqa: S603


async def _entries() -> dict[str, BackendEntry]:
    with contextlib.closing(NftablesDataplane(TableShape(BalancerDataplaneSettings().table, snat=False))) as dataplane:
        found = await dataplane.read()
    return {shown(key.backend): one for key, one in found.items() if isinstance(one, BackendEntry)}


def unshared(command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command as root of a new user namespace, isolated from the host's network.

    Raises `NoNamespaces` where user namespaces are not allowed.
    """
    own = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    try:
        tried = subprocess.run([*own, "true"], capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        raise NoNamespaces("unshare is not installed: run sudo make lab, or install util-linux") from None
    if tried.returncode:
        raise NoNamespaces(
            f"this user may not create namespaces ({tried.stderr.strip()}): run sudo make lab, or allow them with "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu) or kernel.unprivileged_userns_clone=1 "
            "(Debian)"
        )
    return [*own, "sh", "-c", _UNSHARED, "sh", *command]
