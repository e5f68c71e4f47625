"""A real agent on a large fleet: how much memory its processes need once everything is programmed.

It runs as an operator runs it, and programs a network namespace of its own over VXLAN, so what Linux keeps is not part
of its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from bench import fleet
from bench.benchmark import Unmeasurable
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.store.api import Put, Store
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.testing.real.daemon import Daemon
from holdfast.testing.real.netns import Namespace, NamespaceNetwork, network
from holdfast.testing.real.processes import Unavailable, children

HERE, UNDERLAY = "here", "192.168.255.254/16"
PATIENCE_S = 900.0
POLL_S = 1.0
AT_ONCE = 100
"""Puts of one transaction."""


async def resident_mb(etcd: EmbeddedEtcd, store: Store, endpoints: int, routing: str) -> float:
    """Return the memory of the larger process of an agent, with that many endpoints of other hosts in the store."""
    hosts = [fleet.host(number) for number in range(-(-endpoints // fleet.PER_HOST))]
    await write(store, [_identity(), _here(), *hosts, *fleet.endpoints(endpoints)])
    try:
        with network() as net:
            daemon = _daemon(net, etcd.endpoint, routing)
            daemon.start()
            try:
                return await _settled_mb(daemon, net.namespaces[-1], endpoints if routing == "mesh" else 0)
            finally:
                daemon.kill()
    except Unavailable as missing:
        raise Unmeasurable(str(missing)) from missing


async def write(store: Store, puts: Sequence[Put]) -> None:
    for start in range(0, len(puts), AT_ONCE):
        await store.txn((), puts[start : start + AT_ONCE])


def _identity() -> Put:
    return Put(IDENTITY.key(fleet.REGION, "identity"), IDENTITY.encode(Identity("bench", 1)))


def _here() -> Put:
    host = Host.of(HERE, HostSpec(bgp=Bgp(ipv4_address=UNDERLAY)))
    return Put(HOST.key(fleet.REGION, HERE), HOST.encode(host))


def _daemon(net: NamespaceNetwork, endpoint: str, routing: str) -> Daemon:
    outside, machine = net.namespace("outside"), net.namespace("machine")
    net.cable(outside, machine, "192.168.255.253/16", UNDERLAY)
    dataplane = f"{{kind: linux, netns: {machine.system_name}}}"
    agent = f"agent: {{host: {HERE}, routing: {routing}, encapsulation: always, dataplane: {dataplane}}}"
    store = f"store: {{endpoints: ['{endpoint}']}}"
    return Daemon("agent", _Beside("bench", "", net.home), net.home / "agent", [store, agent])


class _Beside(Namespace):
    """Namespace of this process, in which the agent reaches etcd."""

    def command(self, *words: str) -> Sequence[str]:
        return words


async def _settled_mb(daemon: Daemon, machine: Namespace, routes: int) -> float:
    """Wait until everything is programmed, and compared."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE_S
    while not await asyncio.to_thread(_is_at_rest, daemon, machine, routes):
        if clock() > deadline:
            raise Unmeasurable(f"the agent did not program {routes:,} routes within {PATIENCE_S:g} s: use fewer")
        await asyncio.sleep(POLL_S)
    return max(_mb(pid) for pid in (daemon.process.pid, *children(daemon.process.pid)))


def _is_at_rest(daemon: Daemon, machine: Namespace, routes: int) -> bool:
    if daemon.worker("peers").get("state") != "ok":
        return False
    shown = machine.run("sh", "-c", "ip route show table 7500 2>/dev/null | wc -l")
    return int(shown) >= routes


def _mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split(maxsplit=1)[0]) / 1024
