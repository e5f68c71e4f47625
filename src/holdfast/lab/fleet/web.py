"""Web site of the lab: three small servers behind one VIP, and the balancer's configuration for them.

The servers answer with their name, keep connections open, and can be stopped and started one by one (`halt`, `serve` on
the worker's control socket). A halted server behaves like a killed process: its port refuses connections, and open ones
are reset. The servers are on loopback, or in a lab on the kernel each in a namespace of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import structlog

from holdfast.balancer.vip import Vip, VipKey, backend
from holdfast.lab.fleet import layout, netns
from holdfast.model.base.time import Duration
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import write_atomically
from holdfast.store.embedded.server import free_ports
from holdfast.testing.real.anycast import SERVERS, address

log = structlog.get_logger(__name__)

Address = tuple[str, int]
"""Address and port."""
WEB = Spec("web", "holdfast.lab.fleet.web:web")
LOOPBACK = "127.0.0.1"
FRONTEND = "www"
ADDRESS = "192.0.2.80"
VIP = Vip.of(ADDRESS, "tcp", 80)
WEIGHT = 100
INTERVAL = Duration(milliseconds=200)
FALL = 3


def addresses(state: Path) -> Mapping[str, Address] | None:
    """Return the addresses of the servers, which stay the same over restarts; None before their first start."""
    if layout.namespaces(state):
        return {name: (address(name), VIP.port) for name in SERVERS}
    try:
        return msgspec.json.decode((state / "site.json").read_bytes(), type=dict[str, Address])
    except (FileNotFoundError, msgspec.ValidationError):  # the file of an older lab is written again
        return None


def entry(state: Path, name: str) -> VipKey:
    """Return the key of a server's entry under the VIP."""
    return VipKey(VIP, backend(*(addresses(state) or {})[name]))


def balancer_configuration(listening: Mapping[str, Address]) -> bytes:
    """Return the balancer's configuration file. Its delays are short, so that a scene takes seconds."""
    members: dict[str, object] = {name: {} for name in listening}
    check = {
        "type": "http",
        "interval": f"{INTERVAL // Duration(milliseconds=1)}ms",
        "down-interval": "500ms",
        "timeout": "3s",
        "rise": 2,
        "fall": FALL,
    }
    backends = {name: {"address": host, "port": port, "healthcheck": "web"} for name, (host, port) in listening.items()}
    balancer = {
        "startup-min-delay": "1s",
        "startup-max-delay": "3s",
        "sync-interval": "2s",
        "healthchecks": {"web": check},
        "backends": backends,
        "frontends": {FRONTEND: {"address": ADDRESS, "port": VIP.port, "pools": [{"backends": members}]}},
    }
    return msgspec.json.format(msgspec.json.encode({"balancer": balancer}), indent=2)


class WebServer:
    """One web server; `listen` creates its listening socket."""

    def __init__(self, name: str, listen: Callable[[], socket.socket]) -> None:
        self.name = name
        self._listen = listen
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._talk, sock=self._listen())

    def halt(self) -> int:
        """Stop at once, and return how many connections that reset."""
        if self._server is not None:
            self._server.close()
            self._server = None
        reset = len(self._open)
        for writer in self._open:
            writer.transport.abort()
        return reset

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        body = f"{self.name}\n".encode()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        try:
            # A client that disconnects or sends an endless header ends its own connection and nothing else.
            with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(answer)
                    await writer.drain()
        finally:
            self._open.discard(writer)
            writer.close()


async def web(worker: Worker) -> None:
    """Run the servers."""
    state = worker.paths.state
    listening = addresses(state) or {name: (LOOPBACK, port) for name, port in zip(SERVERS, free_ports(3), strict=True)}
    namespaces = layout.namespaces(state)
    servers = {name: WebServer(name, _listener(namespaces.get(name), one)) for name, one in listening.items()}

    async def halt(request: Request, _who: Who) -> int:
        return _named(servers, request).halt()

    async def serve(request: Request, _who: Who) -> None:
        await _named(servers, request).serve()

    worker.handlers |= {"halt": halt, "serve": serve}
    for server in servers.values():
        await server.serve()
    if not namespaces:
        write_atomically(state / "site.json", msgspec.json.encode(listening))
    log.info("web servers are listening", addresses=[f"{host}:{port}" for host, port in listening.values()])
    worker.vitals.attempted(success=True)
    await worker.stopping.wait()
    for server in servers.values():
        server.halt()


def _listener(namespace: str | None, address: Address) -> Callable[[], socket.socket]:
    return partial(socket.create_server, address) if namespace is None else partial(netns.listening, namespace, address)


def _named(servers: Mapping[str, WebServer], request: Request) -> WebServer:
    name = str(request.args.get("name"))
    if name not in servers:
        raise Declined(f"no web server {name!r}; known: {', '.join(servers)}")
    return servers[name]
