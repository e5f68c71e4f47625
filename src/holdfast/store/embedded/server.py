"""`EmbeddedEtcd`: an etcd of our own, for a first fleet, the lab and the tests.

Promises: it has its own data folder and listens on loopback only; the server on its port is the process we started (its
pid owns the listening socket), never another one; it compacts itself; it ends on `stop`, and dies with us
when we are killed, so that no orphan is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from holdfast.model.base.time import Duration
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.client import EtcdStore
from holdfast.store.embedded import binary
from holdfast.store.transport.gateway import Connection

START_WITHIN = Duration(seconds=20)
STOP_WITHIN = Duration(seconds=5)
PORT_TRIES = 5
_LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""

# Runs in a fresh interpreter between fork and exec: the kernel kills etcd when its parent dies (1 = PR_SET_PDEATHSIG,
# 9 = SIGKILL), and a parent that died before that was set is noticed by its changed pid.
_SHIM = """
import ctypes, os, sys
ctypes.CDLL(None, use_errno=True).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedEtcd:
    """One single-member etcd. Use it as `async with EmbeddedEtcd(folder) as etcd:` or by `start` and `stop`."""

    def __init__(
        self,
        folder: Path,
        *,
        etcd: Path | None = None,
        port: int | None = None,
        options: Sequence[str] = (),
        compaction: str = "10m",
        for_trying_out: bool = False,
    ) -> None:
        """`port` fixes the client port; `options` are further etcd flags; `compaction` is how much history etcd keeps;
        `for_trying_out` also accepts, with a warning, an etcd that can lose data when it is killed."""
        self.folder = folder
        self._for_trying_out = for_trying_out
        self._etcd = etcd
        self._wanted_port = port
        self._options = tuple(options)
        self._compaction = compaction
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "etcd was not started"
        return self._process.pid

    def connection(self, deadline: Duration = Duration(seconds=5)) -> Connection:
        """Return the connection settings for a client."""
        return Connection((self.endpoint,), deadline=deadline)

    async def start(self) -> None:
        """Start etcd and wait until it serves. Raises `StoreError` or `NoEtcd` with the reason."""
        executable = await asyncio.to_thread(binary.find, self._etcd, for_trying_out=self._for_trying_out)
        (self.folder / "data").mkdir(parents=True, exist_ok=True, mode=0o700)
        for _ in range(PORT_TRIES):
            ports = free_ports(2)
            self._port = self._wanted_port or ports[0]
            self._refuse_taken_port()
            await self._spawn(executable, self._port, ports[1])
            try:
                if await self._serves():
                    return
                reason = self._last_log_line()
            except BaseException:
                await self.stop()
                raise
            await self.stop()
            if "address already in use" not in reason:
                raise StoreError(f"etcd did not start ({reason}); its log is {self.folder / 'etcd.log'}")
        raise StoreError(f"etcd did not start: no free port was found in {PORT_TRIES} tries")

    async def ended(self) -> None:
        """Wait until etcd has ended, for whatever reason."""
        if self._process is not None:
            await self._process.wait()

    async def stop(self) -> None:
        """End etcd: SIGTERM, then SIGKILL if it does not end in time."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_WITHIN.total_seconds()):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def __aenter__(self) -> EmbeddedEtcd:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _refuse_taken_port(self) -> None:
        owners = listening_pids(self._port)
        if owners is not None and self._wanted_port:
            by = f" (pid {', '.join(map(str, sorted(owners)))})" if owners else ""
            raise StoreError(f"port {self._port} is taken by another server{by}; stop it or choose another port")

    async def _spawn(self, executable: Path, port: int, peer_port: int) -> None:
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        flags = [
            f"--name={self.folder.name or 'holdfast'}",
            f"--data-dir={self.folder / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={self.folder.name or 'holdfast'}={peer}",
            f"--initial-cluster-token={secrets.token_hex(8)}",
            "--auto-compaction-mode=periodic",
            f"--auto-compaction-retention={self._compaction}",
            "--heartbeat-interval=50",
            "--election-timeout=500",
            "--logger=zap",
            "--log-level=warn",
            *self._options,
        ]
        command = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), str(executable), *flags]
        with (self.folder / "etcd.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    async def _serves(self) -> bool:
        """Wait until *our* process listens and answers; return False if it ended or was too slow."""
        assert self._process is not None
        store = EtcdStore(self.connection(Duration(seconds=1)))
        try:
            async with asyncio.timeout(START_WITHIN.total_seconds()):
                while self._process.returncode is None:
                    if self.pid in (listening_pids(self._port) or ()) and await _answers(store):
                        return True
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pass
        finally:
            await store.close()
        return False

    def _last_log_line(self) -> str:
        lines = (self.folder / "etcd.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:400] if lines else "its log is empty"


async def _answers(store: EtcdStore) -> bool:
    try:
        await store.get(b"\0")
    except StoreAway:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return loopback ports on which no process listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]


def listening_pids(port: int, proc: Path = Path("/proc")) -> frozenset[int] | None:
    """Return the processes that listen on `port`, as far as /proc shows them to us; None when none does."""
    inodes = _inodes(port, proc)
    if not inodes:
        return None
    return frozenset(int(folder.name) for folder in proc.iterdir() if folder.name.isdigit() and _holds(folder, inodes))


def _inodes(port: int, proc: Path) -> frozenset[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue  # a kernel without IPv6
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return frozenset(found)


def _holds(process: Path, sockets: frozenset[str]) -> bool:
    try:
        return any(str(descriptor.readlink()) in sockets for descriptor in (process / "fd").iterdir())
    except OSError:
        return False  # it ended meanwhile, or we may not read it
