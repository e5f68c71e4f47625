"""The fleet that `holdfast up` runs: an etcd, two servers with an inventory, agents, a balancer with a web site and a
client, all as real processes, and the demonstration of the one loop.

Each daemon is a process tree of its own with its own folders below the lab's, exactly as on machines of
their own; the lab's supervisor starts it again when it is gone, as a service manager would.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import structlog

from holdfast.lab import demo
from holdfast.lab.fleet import agents as lab_agents
from holdfast.lab.fleet import inventory, netns
from holdfast.lab.fleet import server as member
from holdfast.lab.fleet import web as site
from holdfast.lab.fleet.balancer import BALANCER, ON_KERNEL
from holdfast.lab.fleet.client import CLIENT
from holdfast.lab.fleet.web import WEB
from holdfast.model.base.time import Duration
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import write_atomically
from holdfast.store.embedded.server import EmbeddedEtcd, free_ports

log = structlog.get_logger(__name__)

ROLE = "lab"
SERVERS = ("ctl-1", "ctl-2")
WORKERS = (
    Spec("etcd", "holdfast.lab.fleet.fleet:etcd"),
    inventory.INVENTORY,
    *(Spec(name, "holdfast.lab.fleet.fleet:server") for name in SERVERS),
    lab_agents.AGENTS,
    WEB,
    Spec(BALANCER, "holdfast.lab.fleet.fleet:balancer"),
    CLIENT,
    *demo.WORKERS,
)
TIMINGS = (
    *("server.ttl=5s", "server.renew_every=500ms", "server.renew_deadline=3s", "server.rpc_timeout=1s"),
    *("status.stale_after=5s", "status.warn_every=5s"),
)
"""Shorter than the defaults, so that a scene is over before one gets bored."""
_LOOK = Duration(milliseconds=200)


def etcd_folder(state: Path) -> Path:
    return state / "etcd"


def endpoint(state: Path) -> str | None:
    """Where the lab's etcd listens; the same over restarts. None before its first start."""
    try:
        return f"http://127.0.0.1:{int((etcd_folder(state) / 'port').read_text(encoding='ascii'))}"
    except (OSError, ValueError):
        return None


async def etcd(worker: Worker) -> None:
    """Runs the lab's etcd; ends when etcd does, so that the supervisor starts both again."""
    folder = etcd_folder(worker.paths.state)
    folder.mkdir(parents=True, exist_ok=True)
    known = endpoint(worker.paths.state)
    port = int(known.rpartition(":")[2]) if known else free_ports(1)[0]
    named = os.environ.get("HOLDFAST_ETCD")
    async with EmbeddedEtcd(folder, port=port, etcd=Path(named) if named else None, for_trying_out=True) as running:
        write_atomically(folder / "port", str(port).encode())
        write_atomically(folder / "pid", str(running.pid).encode())
        log.info(f"etcd listens on {running.endpoint}")
        worker.vitals.attempted(success=True)
        ended = asyncio.create_task(running.ended())
        stopping = asyncio.create_task(worker.stopping.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, stopping):
            task.cancel()
        if not worker.stopping.is_set():
            raise RuntimeError("etcd ended by itself")


async def server(worker: Worker) -> None:
    """Runs one server beside this process; ends when it does."""
    while (url := endpoint(worker.paths.state)) is None:
        if await worker.stopped(_LOOK):
            return
    database = f"inventory.database={inventory.database(worker.paths.state)}"
    settings = [f"server.name={worker.name}", f"store.endpoints={url}", database, *_own(worker), *TIMINGS]
    await _beside(worker, member.command([f"{member.DIE_WITH}{os.getpid()}", *settings]))


async def balancer(worker: Worker) -> None:
    """Runs the balancer beside this process; ends when it does."""
    while (listening := site.places(worker.paths.state)) is None:
        if await worker.stopped(_LOOK):
            return
    file = worker.paths.state / f"{worker.name}.yaml"
    write_atomically(file, site.configuration(listening))
    namespace = netns.namespaces(worker.paths.state).get(BALANCER)
    kind = [] if namespace is None else [ON_KERNEL]
    arguments = [f"{member.DIE_WITH}{os.getpid()}", *kind, str(file), *_own(worker)]
    command = member.command(arguments, module="holdfast.lab.fleet.balancer")
    await _beside(worker, command if namespace is None else netns.within(namespace, command))


async def agents(worker: Worker) -> None:
    """Runs the agents beside this process, and starts each again when it ends."""
    state = worker.paths.state
    while (url := endpoint(state)) is None:
        if await worker.stopped(_LOOK):
            return
    lab_agents.kernel_file(state, "").parent.mkdir(exist_ok=True)
    async with asyncio.TaskGroup() as tasks:
        for host in inventory.hosts(state):
            settings = [f"store.endpoints={url}", *_own(worker, host)]
            tasks.create_task(lab_agents.tend(worker, host, settings), name=host)
            await lab_agents.is_up(worker, host)
        worker.vitals.attempted(success=True)


def _own(worker: Worker, daemon: str = "") -> list[str]:
    """The settings that keep one daemon of the lab apart from the others."""
    name = daemon or worker.name
    return [
        f"paths.runtime={worker.paths.runtime / name}",
        f"paths.state={worker.paths.state / name}",
        f"log.format={worker.config.log.format}",
        f"log.level={worker.config.log.level}",
    ]


async def _beside(worker: Worker, command: Sequence[str]) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    worker.vitals.attempted(success=True)
    ended, stopping = asyncio.create_task(process.wait()), asyncio.create_task(worker.stopping.wait())
    try:
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not worker.stopping.is_set():
            raise RuntimeError(f"{worker.name} ended by itself (exit code {process.returncode})")
    finally:
        stopping.cancel()
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await ended
