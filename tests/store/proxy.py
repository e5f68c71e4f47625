"""A TCP proxy between a store and its etcd, to break single connections in the ways that networks do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

from holdfast.store.transport.gateway import Connection
from holdfast.store.transport.http import MemberAddress

_BEGINNING = 5
"""Turns of the loop from a client's connect to the first step of its handler: select, accept, transport, protocol,
task. Clients of a proxy go before it does, so no others come meanwhile."""


@dataclass(eq=False)
class Flow:
    """One proxied connection: what was asked first, and whether its answers still get through."""

    client: asyncio.StreamWriter
    first: bytes = b""
    silent: bool = False
    left: int | None = None

    @property
    def is_watch(self) -> bool:
        return b"/v3/watch" in self.first


@dataclass
class Proxy:
    """Forwards to `target`. `cut_answers_after` resets each new connection after that many bytes of answers."""

    target: str
    cut_answers_after: int | None = None
    before_watch: Callable[[], Awaitable[None]] | None = None
    """Happens once, when the next watch has been asked for and etcd has not heard of it yet."""
    flows: list[Flow] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def connection(self) -> Connection:
        return Connection((self.url,))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_how: object) -> None:
        assert self._server is not None
        for _ in range(_BEGINNING):
            await asyncio.sleep(0)  # a connection has to begin before it can be ended, and none begins after this
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next turn

    def watches(self) -> list[Flow]:
        return [flow for flow in self.flows if flow.is_watch and not flow.client.is_closing()]

    def silence_watches(self) -> None:
        """Half-opens every watch stream: open for both sides, but nothing comes through any more."""
        for flow in self.watches():
            flow.silent = True

    def request(self, data: bytes) -> bytes:
        """Return what etcd gets of what a client sent."""
        return data

    def reset(self) -> None:
        for flow in self.flows:
            flow.client.transport.abort()
        self.flows.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        wanted = self.target
        target = MemberAddress.parse(wanted)
        up_writer: asyncio.StreamWriter | None = None
        try:
            up_reader, up_writer = await asyncio.open_connection(target.host, target.port)
            if self.target != wanted:
                return  # led elsewhere, and everything reset, while this one was on its way
            flow = Flow(writer, left=self.cut_answers_after)
            self.flows.append(flow)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._up(reader, up_writer, flow))
                both.create_task(self._down(up_reader, flow))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            return  # one of the two sides has gone, or the test is over; asyncio's streams want no cancelled handler
        finally:
            writer.transport.abort()
            if up_writer is not None:
                up_writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Flow) -> None:
        while data := await reader.read(1 << 16):
            flow.first = flow.first or data
            if flow.is_watch and self.before_watch is not None:
                happening, self.before_watch = self.before_watch, None
                await happening()
            writer.write(self.request(data))
            await writer.drain()
        raise ConnectionResetError

    async def _down(self, reader: asyncio.StreamReader, flow: Flow) -> None:
        while data := await reader.read(1 << 16):
            if flow.left is not None:
                flow.left -= len(data)
                if flow.left < 0:
                    break
            if not flow.silent:
                flow.client.write(data)
                await flow.client.drain()
        raise ConnectionResetError
