"""A TCP proxy that delays, drops silently in one or both directions, resets and refuses, controlled at run time.

    with fault_proxy(port) as proxy:
        connect to proxy.port ...
        proxy.half_open(towards="client")   # the server still receives, the client does not, neither gets an error
        proxy.heal()

Data that is held back is not lost: `heal` delivers it, as a recovered network does. The proxy runs in a thread of its
own with its own loop, so that a busy test does not stop it, and ends with the test's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Literal

from holdfast.testing.real.processes import reserved_ports

Side = Literal["client", "server"]
_CHUNK = 1 << 16
_ABORT = struct.pack("ii", 1, 0)
_PATIENCE = 10.0


class _Way:
    """One direction of one connection."""

    def __init__(self) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay: Callable[[], float]) -> None:
        while data := await source.read(_CHUNK):
            await asyncio.sleep(delay())
            await self.flowing.wait()
            sink.write(data)
            await sink.drain()
        await self.flowing.wait()
        sink.write_eof()


class _Channel:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.ways: dict[Side, _Way] = {"client": _Way(), "server": _Way()}
        self._writers = (client, server)

    def reset(self) -> None:
        """End both sides with a TCP reset."""
        for writer in self._writers:
            sock: socket.socket = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            writer.transport.abort()


class FaultProxy:
    """Between its own `port` and `target` on loopback. Every method may be called from any thread."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._port = reserved_ports(1)
        """Reserved also while the proxy does not listen."""
        self._server: asyncio.Server | None = None
        self._resets = 0
        self._channels: list[_Channel] = []
        self._running: set[asyncio.Task[None]] = set()
        self._delay = 0.0
        self._silent: frozenset[Side] = frozenset()

    @property
    def connections(self) -> int:
        """Number of open connections through the proxy."""
        return len(self._channels)

    def delay(self, seconds: float) -> None:
        """Delay everything, in each direction."""
        self._delay = seconds

    def half_open(self, *, towards: Side, new: bool = False) -> None:
        """Hold back what flows towards that side, silently; the other direction flows. With `new`, also on connections
        that are yet to come."""
        self._run_in_loop(lambda: self._silence(frozenset({towards}), new=new))

    def black_hole(self, *, new: bool = True) -> None:
        """Hold back everything, silently."""
        self._run_in_loop(lambda: self._silence(frozenset({"client", "server"}), new=new))

    def reset(self) -> None:
        """Reset every open connection."""
        self._run_in_loop(self._reset)

    def refuse(self) -> None:
        """Stop listening: open connections are reset, new ones refused."""
        self._run_in_loop(self._stop_listening)
        self._run_in_loop(self._reset)

    def heal(self) -> None:
        """Let everything pass without delay, and deliver what was held back."""
        self._delay = 0.0
        self._run_in_loop(self._release)
        if self._server is None:
            self._await(self._listen())

    def start(self) -> None:
        (self.port,) = self._port.__enter__()
        self._thread.start()
        self._await(self._listen())

    def stop(self) -> None:
        self._run_in_loop(self._stop_listening)
        self._run_in_loop(self._reset)
        self._await(self._drain())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()
        self._port.__exit__(None, None, None)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        with contextlib.suppress(ConnectionError, OSError):
            await self._join(reader, writer)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        resets = self._resets
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        channel = _Channel(writer, up_writer)
        if resets != self._resets:
            channel.reset()  # it was open for the client when everything was reset
            return
        self._channels.append(channel)
        self._hold(channel, self._silent)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(channel.ways["server"].pump(reader, up_writer, lambda: self._delay))
                both.create_task(channel.ways["client"].pump(up_reader, writer, lambda: self._delay))
        except* (ConnectionError, OSError):
            channel.reset()
        finally:
            self._channels.remove(channel)
            for end in (writer, up_writer):
                end.close()

    def _silence(self, sides: frozenset[Side], *, new: bool) -> None:
        self._silent = sides if new else frozenset()
        for channel in self._channels:
            self._hold(channel, sides)

    def _hold(self, channel: _Channel, sides: frozenset[Side]) -> None:
        for side in sides:
            channel.ways[side].flowing.clear()

    def _release(self) -> None:
        self._silent = frozenset()
        for channel in self._channels:
            for way in channel.ways.values():
                way.flowing.set()

    def _reset(self) -> None:
        self._resets += 1
        for channel in list(self._channels):
            channel.reset()
            for way in channel.ways.values():
                way.flowing.set()

    async def _drain(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _run_in_loop(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(_PATIENCE)

    def _await(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)


@contextlib.contextmanager
def fault_proxy(target: int) -> Iterator[FaultProxy]:
    """Run a proxy to a port on loopback until the block ends."""
    proxy = FaultProxy(target)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
