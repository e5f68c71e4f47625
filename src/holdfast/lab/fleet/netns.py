"""The lab on the real kernel: client, balancer, servers and the first hosts each in a network namespace of its own.

`ground` makes the namespaces for as long as the lab runs, and writes down what the kernel calls them; where that file
is, the lab's workers go there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape
from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.vip import BackendEntry, shown
from holdfast.config.sections.balancer import BalancerDataplaneSettings
from holdfast.lab.fleet import kernel_hosts as hosts
from holdfast.netlink.netns import inside
from holdfast.runtime.paths import write_atomically
from holdfast.testing.real.anycast import SERVERS, AnycastSite, address
from holdfast.testing.real.netns import network
from holdfast.testing.real.processes import Unavailable

CLIENT = "client"
PORT = 80
_UNSHARED = 'mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@"'


class NoNamespaces(Exception):
    """There can be no namespaces here; the message is one sentence with what to do."""


class Programmed(msgspec.Struct):
    """What a dataplane holds for the web site."""

    writes: int
    """Changes that were ever made to it."""
    entries: dict[str, BackendEntry]
    """By ADDRESS:PORT."""
    ends: dict[str, int] = {}
    """How often the flows of an entry were ended, where anybody counts that."""


def _file(state: Path) -> Path:
    return state / "namespaces.json"


def namespaces(state: Path) -> Mapping[str, str]:
    """What the kernel calls the namespaces of a lab that runs; none: everything is in memory."""
    try:
        return msgspec.json.decode(_file(state).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}


@contextlib.contextmanager
def ground(state: Path) -> Iterator[None]:
    """The namespaces, wired and routed, until the block ends. Raises `NoNamespaces`."""
    state.mkdir(mode=0o750, parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            net = held.enter_context(network())
            AnycastSite(net)
            hosts.wire(net)
        except Unavailable as missing:
            raise NoNamespaces(f"{missing}: make up runs a lab without namespaces") from missing
        made = {one.name: one.system_name for one in net.namespaces}
        write_atomically(_file(state), msgspec.json.encode(made))
        held.callback(forget, state)
        yield


def forget(state: Path) -> None:
    """What a lab that was killed has left says nothing about the next one."""
    _file(state).unlink(missing_ok=True)


def places() -> Mapping[str, tuple[str, int]]:
    """Where the servers listen."""
    return {name: (address(name), PORT) for name in SERVERS}


def listening(namespace: str, place: tuple[str, int]) -> socket.socket:
    return inside(namespace, lambda: socket.create_server(place))


def within(namespace: str, command: Sequence[str]) -> Sequence[str]:
    """The command line that runs a command there."""
    return ["ip", "netns", "exec", namespace, *command]


def programmed(namespace: str) -> Programmed:
    """What the kernel holds there, by its own word and count."""

    def look() -> Programmed:
        held = asyncio.run(_held())
        with contextlib.closing(NftConnection(BalancerDataplaneSettings().table)) as kernel:
            return Programmed(kernel.generation(), held)

    return inside(namespace, look)


def wipe(namespace: str) -> None:
    """Deletes there what the balancer has programmed, behind its back."""
    table = ["nft", "delete", "table", "inet", BalancerDataplaneSettings().table]
    inside(namespace, lambda: subprocess.run(table, check=True, capture_output=True))  # noqa: S603


async def _held() -> dict[str, BackendEntry]:
    with contextlib.closing(
        NftablesDataplane(
            TableShape(BalancerDataplaneSettings().table, BalancerDataplaneSettings().table_size, snat=False)
        )
    ) as dataplane:
        found = await dataplane.read()
    return {shown(key.backend): one for key, one in found.items() if isinstance(one, BackendEntry)}


def unshared(words: Sequence[str]) -> list[str]:
    """The command line that runs these words as root of a user namespace, where nothing real can be touched.

    Raises `NoNamespaces` where that is not allowed.
    """
    own = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    try:
        tried = subprocess.run([*own, "true"], capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        raise NoNamespaces("unshare is not installed: run sudo make lab, or install util-linux") from None
    if tried.returncode:
        raise NoNamespaces(
            f"namespaces are not for this user ({tried.stderr.strip()}): run sudo make lab, or allow them with sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu) or kernel.unprivileged_userns_clone=1 (Debian)"
        )
    return [*own, "sh", "-c", _UNSHARED, "sh", *words]
