"""Answers of a simulated machine to the shipped code that runs on it: pid, host name, boot id, clocks, files, sockets,
the store's connections and the database.

    with on_simulated_machines(world, machines):
        daemon.start()

Nothing of a job is replaced but the calls that leave its process. Which machine answers follows from the process whose
code is running.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from unittest.mock import patch

import msgspec
from sqlalchemy import Engine

from holdfast.agent.journal.files import Files
from holdfast.config.sections.store import StoreSettings
from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.sql.engine import open_engine
from holdfast.inventory.sql.objects import SqlInventory, SqlSnapshot
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.model.base.time import Duration
from holdfast.runtime.caller import Who
from holdfast.runtime.control import Answer, Declined, Handler, Request
from holdfast.testing.sim.loop import CURRENT
from holdfast.testing.sim.machine import SimMachine, own_pid
from holdfast.testing.sim.nodes import Node
from holdfast.testing.sim.world import World
from holdfast.testing.store.gateway.client import SimEtcdStore

BOOT_ID = ("agent.worker", "agent.report.worker", "balancer.worker", "server.election.worker")
T = TypeVar("T")
OPEN_STORE = (*BOOT_ID, "server.syncer.worker", "server.status.worker")
_CALL_IN_THREAD = DatabaseThread.__call__
_SELF = Who(0, 0, "root")


class Died(asyncio.CancelledError):
    """The process has ended itself."""


class SimFiles(Files):
    """The journal's files, on a disk that may be full; what killed agents left open is closed at the end."""

    opened: set[int]
    here: Callable[[], tuple[SimMachine, Node]]

    def write(self, fd: int, data: bytes | memoryview) -> int:
        machine, node = self.here()
        if machine.disk_is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        if machine.tears_next_write:
            machine.tears_next_write = False
            super().write(fd, data[: len(data) // 2])
            node.kill()
            raise Died
        return super().write(fd, data)

    def create(self, path: Path) -> int:
        self.opened.add(fd := super().create(path))
        return fd

    def append_to(self, path: Path) -> int:
        self.opened.add(fd := super().append_to(path))
        return fd

    def close(self, fd: int) -> None:
        self.opened.discard(fd)
        super().close(fd)


class SimWaker:
    """Reports a change sometimes at once, sometimes not at all."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(self._random.choice([0.05, most.total_seconds()]))

    async def close(self) -> None:
        return None


@dataclass
class Seams:
    """The answers, and what has to be closed when the simulation is over."""

    world: World
    machines: Mapping[str, SimMachine]
    prober: Callable[[Node], Any]
    sockets: dict[Path, tuple[int, Mapping[str, Handler]]] = field(default_factory=dict)
    engines: list[Engine] = field(default_factory=list)
    snapshots: list[SqlSnapshot] = field(default_factory=list)
    files: set[int] = field(default_factory=set)

    def here(self) -> tuple[SimMachine, Node]:
        """Return the machine and the node of the process that is running."""
        process = CURRENT.get()
        assert process is not None, "only a process asks for its machine"
        name = process.name.partition("/")[0]
        machine = self.machines[name]
        node = next(node for node in machine.nodes.values() if node.process is process)
        return machine, node

    def host_name(self) -> str:
        return "world" if CURRENT.get() is None else self.here()[0].name

    def boot_id(self) -> str:
        return self.here()[0].boot_id

    def pid_namespace(self) -> str:
        return f"pid:{self.here()[0].name}"

    def is_gone(self, pid: int) -> bool:
        return self.here()[0].process(pid) is None

    def exit(self, code: int) -> NoReturn:
        _, node = self.here()
        self.world.note(f"{node.name} ends itself with exit code {code}")
        node.kill()
        raise Died

    def open_store(self, config: StoreSettings, *, relist_spread: Duration = Duration(0)) -> SimEtcdStore:
        return self.here()[1].etcd(deadline=config.call_deadline, relist_spread=relist_spread)

    def open_dataplane(self, *_settings: object) -> Any:
        machine, _ = self.here()
        machine.kernel.reattach()
        return machine.kernel

    def open_vips(self, *_settings: object) -> Any:
        return self.here()[0].vips

    def open_prober(self, _path: Path) -> Any:
        return self.prober(self.here()[1])

    def open_engine(self, *args: Any, **options: Any) -> Engine:
        self.engines.append(made := open_engine(*args, **options))
        return made

    def open_inventory(self, engine: Engine) -> SqlInventory:
        made = SqlInventory(engine)
        begin = made.snapshot

        def snapshot() -> SqlSnapshot:
            self.snapshots.append(opened := begin())
            return opened

        made.snapshot = snapshot  # type: ignore[method-assign]
        return made

    async def call_database(self, thread: DatabaseThread, call: Callable[[], T]) -> T:
        """Call the database as a thread does; before and after, the call may be lost."""
        machine, node = self.here()
        lost = node.random.random() / machine.lost_calls if machine.lost_calls else 1.0
        if machine.database_is_away or lost < 0.5:
            await asyncio.sleep(self.world.usual_latency())
            raise DatabaseAway("the call was lost")
        answer = await _CALL_IN_THREAD(thread, call)
        if lost < 1.0:
            raise DatabaseAway("the answer was lost")
        return answer

    def waker(self, _engine: Engine) -> SimWaker:
        return SimWaker(self.here()[1].random)

    async def ask(self, path: Path, request: Request, timeout: float = 5.0) -> Answer:
        """Ask a process of this machine over its control socket."""
        await asyncio.sleep(0.001)
        number, handlers = self.sockets.get(path, (0, {}))
        node = self._process(number)
        if node is None or request.do not in handlers:
            return Answer(error=f"no process listens on {path}: is the daemon running?", silent=True)
        done = asyncio.get_running_loop().create_future()
        node.run(_answer(done, handlers[request.do], request))
        try:
            async with asyncio.timeout(timeout):
                answer: Answer = await done
                return answer
        except TimeoutError:
            return Answer(error=f"no answer from {path} within {timeout:g} s", silent=True)

    def _process(self, number: int) -> Node | None:
        nodes = (node for machine in self.machines.values() for node in machine.nodes.values() if node.alive)
        return next((node for node in nodes if node.process is not None and node.process.number == number), None)

    def close(self) -> None:
        for snapshot in self.snapshots:
            snapshot.close()
        for engine in self.engines:
            engine.dispose()
        for fd in self.files:
            os.close(fd)


async def _answer(done: asyncio.Future[Answer], handler: Handler, request: Request) -> None:
    try:
        answer = Answer(result=msgspec.to_builtins(await handler(request, _SELF)))
    except Declined as declined:
        answer = Answer(error=str(declined))
    if not done.done():
        done.set_result(answer)


def _control_server(seams: Seams) -> type:
    class SimControlServer:
        """Stands for a socket of the machine."""

        def __init__(self, path: Path, handlers: Mapping[str, Handler], **_options: object) -> None:
            process = CURRENT.get()
            assert process is not None
            seams.sockets[path] = process.number, handlers

        async def __aenter__(self) -> SimControlServer:
            return self

        async def __aexit__(self, *_exc: object) -> None:
            return None

    return SimControlServer


@contextlib.contextmanager
def on_simulated_machines(
    world: World, machines: Mapping[str, SimMachine], prober: Callable[[Node], Any]
) -> Iterator[Seams]:
    """Let shipped code that runs in a process of these machines ask them, and not the machine of the test."""
    seams = Seams(world, machines, prober)
    files = type("OpenFiles", (SimFiles,), {"opened": seams.files, "here": staticmethod(seams.here)})
    ids, jitter = world.stream("ids"), world.stream("jitter")
    getpid, real_uuid = os.getpid, uuid.UUID
    world.loop.thread_time = world.usual_latency
    with contextlib.ExitStack() as patched:

        def put(module: str, name: str, value: object) -> None:
            patched.enter_context(patch(f"holdfast.{module}.{name}", value))

        patched.enter_context(patch.object(os, "getpid", lambda: own_pid(getpid)))
        patched.enter_context(patch.object(os, "_exit", seams.exit))
        patched.enter_context(patch.object(socket, "gethostname", seams.host_name))
        patched.enter_context(patch.object(uuid, "uuid4", lambda: real_uuid(int=ids.getrandbits(128), version=4)))
        for module in OPEN_STORE:
            put(module, "open_store", seams.open_store)
        for module in BOOT_ID:
            put(module, "boot_id", seams.boot_id)
        put("server.election.predecessor", "is_gone", seams.is_gone)
        put("server.election.predecessor", "pid_namespace", seams.pid_namespace)
        put("runtime.daemon.worker", "ControlServer", _control_server(seams))
        put("runtime.daemon.supervisor", "cpu_s", lambda _pid: 0.0)
        put("runtime.daemon.supervisor", "random", jitter)
        put("agent.report.worker", "ask", seams.ask)
        put("agent.worker", "open_dataplane", seams.open_dataplane)
        put("agent.worker", "trim_memory", lambda: None)
        put("agent.journal.journal", "Files", files)
        put("balancer.worker", "open_dataplane", seams.open_vips)
        put("balancer.worker", "ProberClient", seams.open_prober)
        put("inventory.open", "open_engine", seams.open_engine)
        put("inventory.open", "SqlInventory", seams.open_inventory)
        put("inventory.open", "waker", seams.waker)

        async def call(thread: DatabaseThread, call: Callable[[], T]) -> T:
            return await seams.call_database(thread, call)

        patched.enter_context(patch.object(DatabaseThread, "__call__", call))
        try:
            yield seams
        finally:
            seams.close()
