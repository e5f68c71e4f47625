"""The lab's web site: three tiny servers behind one VIP, and the balancer's configuration for them.

The servers answer with their name, keep connections open, and can be halted and started one by one (`halt`, `serve` on
the worker's control socket). Halted is as dead as a killed process: nobody listens, and open connections are reset.
They are on loopback, or in a lab on the kernel (`lab.netns`) each in a namespace of its own.
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
from holdfast.lab.fleet import netns
from holdfast.model.base.time import Duration
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import write_atomically
from holdfast.store.embedded.server import free_ports

log = structlog.get_logger(__name__)

Place = tuple[str, int]
"""Address and port."""
WEB = Spec("web", "holdfast.lab.fleet.web:web")
SERVERS = ("web-1", "web-2", "web-3")
HOME = "127.0.0.1"
FRONTEND = "www"
ADDRESS = "192.0.2.80"
VIP = Vip.of(ADDRESS, "tcp", 80)
WEIGHT = 100
INTERVAL = Duration(milliseconds=200)
FALL = 3


def vips_file(state: Path) -> Path:
    return state / "vips.json"


def places(state: Path) -> Mapping[str, Place] | None:
    """Where the servers listen; the same over restarts. None before their first start."""
    if netns.namespaces(state):
        return netns.places()
    try:
        return msgspec.json.decode((state / "site.json").read_bytes(), type=dict[str, Place])
    except (FileNotFoundError, msgspec.ValidationError):  # of an older lab: its servers begin anew
        return None


def entry(state: Path, name: str) -> VipKey:
    """A server's entry under the VIP."""
    return VipKey(VIP, backend(*(places(state) or {})[name]))


def configuration(listening: Mapping[str, Place]) -> bytes:
    """The balancer's file. Delays are short, so that a scene is over before one gets bored."""
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
    """One web server. `listen` makes the socket that it takes connections on."""

    def __init__(self, name: str, listen: Callable[[], socket.socket]) -> None:
        self.name = name
        self._listen = listen
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._talk, sock=self._listen())

    def halt(self) -> int:
        """Stops at once; how many connections that cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
        cut = len(self._open)
        for writer in self._open:
            writer.transport.abort()
        return cut

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        body = f"{self.name}\n".encode()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        try:
            # A client that is gone, or asks for something endless, ends its own connection and nothing else.
            with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(answer)
                    await writer.drain()
        finally:
            self._open.discard(writer)
            writer.close()


async def web(worker: Worker) -> None:
    """Runs the servers."""
    state = worker.paths.state
    listening = places(state) or {name: (HOME, port) for name, port in zip(SERVERS, free_ports(3), strict=True)}
    where = netns.namespaces(state)
    servers = {name: WebServer(name, _listener(where.get(name), place)) for name, place in listening.items()}

    async def halt(request: Request, _who: Who) -> int:
        return _named(servers, request).halt()

    async def serve(request: Request, _who: Who) -> None:
        await _named(servers, request).serve()

    worker.handlers |= {"halt": halt, "serve": serve}
    for server in servers.values():
        await server.serve()
    if not where:
        write_atomically(state / "site.json", msgspec.json.encode(listening))
    log.info(f"web servers listen on {', '.join(f'{host}:{port}' for host, port in listening.values())}")
    worker.vitals.attempted(success=True)
    await worker.stopping.wait()
    for server in servers.values():
        server.halt()


def _listener(namespace: str | None, place: Place) -> Callable[[], socket.socket]:
    return partial(socket.create_server, place) if namespace is None else partial(netns.listening, namespace, place)


def _named(servers: Mapping[str, WebServer], request: Request) -> WebServer:
    name = str(request.args.get("name"))
    if name not in servers:
        raise Declined(f"there is no server {name!r}; there are: {', '.join(servers)}")
    return servers[name]
