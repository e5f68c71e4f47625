"""The demo fleet that `holdfast lab up` starts: an etcd, two servers with an inventory, agents, a balancer with a web
site, and a client that sends requests all the time. All of them are real processes.

Each daemon is a process tree of its own, with its own folders below the lab's, as on a machine of its own. The lab's
supervisor restarts it when it exits, as a service manager would.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import structlog

from holdfast.lab.fleet import agents as lab_agents
from holdfast.lab.fleet import daemon, layout, netns, web
from holdfast.lab.fleet import server as lab_server
from holdfast.lab.fleet.balancer import BALANCER, ON_KERNEL
from holdfast.lab.fleet.client import CLIENT
from holdfast.model.base.time import Duration
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import write_atomically
from holdfast.store.embedded.server import EmbeddedEtcd, free_ports

log = structlog.get_logger(__name__)

ROLE = "lab"
WORKERS = (
    Spec("etcd", "holdfast.lab.fleet.fleet:etcd"),
    Spec("inventory", "holdfast.lab.fleet.seed:seed", once=True),
    *(Spec(name, "holdfast.lab.fleet.fleet:server") for name in layout.SERVERS),
    lab_agents.AGENTS,
    web.WEB,
    Spec(BALANCER, "holdfast.lab.fleet.fleet:balancer"),
    CLIENT,
)
TIMINGS = (
    *("server.ttl=5s", "server.renew_every=500ms", "server.renew_deadline=3s", "server.rpc_timeout=1s"),
    *("status.stale_after=5s", "status.warn_every=5s"),
)
"""Shorter than the defaults, so that a scene takes seconds."""
_POLL = Duration(milliseconds=200)


async def etcd(worker: Worker) -> None:
    """Run the lab's etcd. Raises when etcd exits, so that the supervisor restarts both."""
    folder = layout.etcd_folder(worker.paths.state)
    folder.mkdir(parents=True, exist_ok=True)
    known = layout.endpoint(worker.paths.state)
    port = int(known.rpartition(":")[2]) if known else free_ports(1)[0]
    binary = os.environ.get("HOLDFAST_ETCD")
    async with EmbeddedEtcd(folder, port=port, etcd=Path(binary) if binary else None, for_trying_out=True) as running:
        write_atomically(folder / "port", str(port).encode())
        write_atomically(folder / "pid", str(running.pid).encode())
        log.info("etcd is listening", endpoint=running.endpoint)
        worker.vitals.attempted(success=True)
        ended = asyncio.create_task(running.ended())
        stopping = asyncio.create_task(worker.stopping.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, stopping):
            task.cancel()
        if not worker.stopping.is_set():
            raise RuntimeError("etcd exited")


async def server(worker: Worker) -> None:
    """Run one server as a child process; raises when it exits."""
    while (url := layout.endpoint(worker.paths.state)) is None:
        if await worker.stopped(_POLL):
            return
    database = f"inventory.database={layout.database(worker.paths.state)}"
    settings = [f"server.name={worker.name}", f"store.endpoints={url}", database, *_paths(worker), *TIMINGS]
    await _run(worker, lab_server.command([f"{daemon.DIE_WITH}{os.getpid()}", *settings]))


async def balancer(worker: Worker) -> None:
    """Run the balancer as a child process; raises when it exits."""
    while (listening := web.addresses(worker.paths.state)) is None:
        if await worker.stopped(_POLL):
            return
    file = worker.paths.state / f"{worker.name}.yaml"
    write_atomically(file, web.balancer_configuration(listening))
    namespace = layout.namespaces(worker.paths.state).get(BALANCER)
    kind = [] if namespace is None else [ON_KERNEL]
    arguments = [f"{daemon.DIE_WITH}{os.getpid()}", *kind, str(file), *_paths(worker)]
    command = daemon.command("holdfast.lab.fleet.balancer", arguments)
    await _run(worker, command if namespace is None else netns.command_in(namespace, command))


async def agents(worker: Worker) -> None:
    """Run the agents as child processes, and restart each one when it exits."""
    state = worker.paths.state
    while (url := layout.endpoint(state)) is None:
        if await worker.stopped(_POLL):
            return
    layout.kernel_file(state, "").parent.mkdir(exist_ok=True)
    async with asyncio.TaskGroup() as tasks:
        for host in layout.hosts(state):
            settings = [f"store.endpoints={url}", *_paths(worker, host)]
            tasks.create_task(lab_agents.keep_running(worker, host, settings), name=host)
            await lab_agents.wait_until_up(worker, host)
        worker.vitals.attempted(success=True)


def _paths(worker: Worker, daemon_name: str = "") -> list[str]:
    """Return the settings that keep one daemon of the lab apart from the others."""
    name = daemon_name or worker.name
    return [
        f"paths.runtime={worker.paths.runtime / name}",
        f"paths.state={worker.paths.state / name}",
        "http.address=127.0.0.1:0",
        f"log.format={worker.config.log.format}",
        f"log.level={worker.config.log.level}",
    ]


async def _run(worker: Worker, command: Sequence[str]) -> None:
    worker.vitals.attempted(success=True)
    code = await daemon.run_child(worker, command)
    if code is not None:
        raise RuntimeError(f"{worker.name} exited with code {code}")
