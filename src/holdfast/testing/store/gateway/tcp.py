"""One simulated TCP connection: a transport for the client's protocol, bytes in order, and TCP's own ends.

What is in flight belongs to no process: bytes that were sent arrive although their sender is paused or dead. What
arrives is handed over in the context of the client's process, so that a frozen one gets it when it thaws. On a path
that drops packets nothing arrives until it is healed, or until TCP gives up: 10 s after an unacknowledged write
(TCP_USER_TIMEOUT), 19 s after the last sign of life of an idle connection (keepalive of 10 s, three probes of 3 s).
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from holdfast.testing.store.link import later, world_time

USER_TIMEOUT = 10.0
KEEPALIVE_TIMEOUT = 19.0
SPLIT = 0.1
"""Probability that a reply arrives in two pieces."""


class Path(Protocol):
    """Network path between a client and a member."""

    @property
    def up(self) -> bool: ...
    def delay(self) -> float:
        """Return the latency of one segment, in seconds."""
        ...


class EndpointServer(Protocol):
    """The member's end of the connection."""

    def receive(self, data: bytes) -> None: ...
    def closed(self) -> None: ...


class _Socket:
    """Takes the options that the client sets."""

    def setsockopt(self, *_option: object) -> None:
        """TCP's timeouts are those of `SimTransport`."""


class SimTransport(asyncio.Transport):
    """The client's end. `server` is set by the network before the first byte is written."""

    server: EndpointServer

    def __init__(self, path: Path, protocol: asyncio.BaseProtocol, rng: random.Random) -> None:
        super().__init__({"socket": _Socket()})
        self.dropped = False
        """True if a middlebox has forgotten this flow: nothing passes any more, in either direction."""
        self._path = path
        self._protocol = protocol
        self._rng = rng
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._reading = True
        self._upward: deque[bytes] = deque()
        self._downward: deque[bytes] = deque()
        self._arrived: deque[bytes] = deque()
        self._broken_since: float | None = None
        self._unacknowledged = False

    # The client's side.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self._upward.append(bytes(data))
        if self._passes:
            later(self._path.delay(), self._deliver_up)
        elif not self._unacknowledged:
            self._unacknowledged = True
            later(USER_TIMEOUT, self._time_out)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._arrived:
            self._loop.call_soon(self._hand_over, context=self._context)

    def abort(self) -> None:
        """Close at once; what was written before still arrives."""
        self._close(None)

    def close(self) -> None:
        self._close(None)

    # The network's side.

    def send_down(self, data: bytes) -> None:
        """Send bytes of the member to the client."""
        pieces = [data]
        if len(data) > 1 and self._rng.random() < SPLIT:
            cut = self._rng.randrange(1, len(data))
            pieces = [data[:cut], data[cut:]]
        for piece in pieces:
            self._downward.append(piece)
            if self._passes:
                later(self._path.delay(), self._deliver_down)

    def reset(self, why: int = errno.ECONNRESET) -> None:
        """Break the connection: the client learns it after what has already arrived."""
        if not self._closing:
            self._loop.call_soon(self._close, OSError(why, "Connection reset by peer"), context=self._context)

    def end(self) -> None:
        """End the stream from the member's side, in order."""
        self._loop.call_soon(self._end, context=self._context)

    def path_changed(self) -> None:
        """The path was cut or healed: what waited passes now, or TCP's timer begins."""
        if self._passes:
            self._broken_since, self._unacknowledged = None, False
            for queue, deliver in ((self._upward, self._deliver_up), (self._downward, self._deliver_down)):
                for _ in queue:
                    later(self._path.delay(), deliver)
        elif self._broken_since is None:
            self._broken_since = world_time()
            later(KEEPALIVE_TIMEOUT, self._time_out_idle)

    def drop(self) -> None:
        """Forget this flow, as a firewall does."""
        self.dropped = True
        self.path_changed()

    @property
    def _passes(self) -> bool:
        return self._path.up and not self.dropped

    def _time_out(self) -> None:
        if self._unacknowledged and not self._passes:
            self.reset(errno.ETIMEDOUT)

    def _time_out_idle(self) -> None:
        since = self._broken_since
        if since is not None and world_time() - since >= KEEPALIVE_TIMEOUT - 0.001:
            self.reset(errno.ETIMEDOUT)

    def _deliver_up(self) -> None:
        if self._passes and self._upward:
            self.server.receive(self._upward.popleft())

    def _deliver_down(self) -> None:
        if self._passes and self._downward and not self._closing:
            self._arrived.append(self._downward.popleft())
            self._loop.call_soon(self._hand_over, context=self._context)

    def _hand_over(self) -> None:
        if self._closing or not self._reading or not self._arrived:
            return
        data = b"".join(self._arrived)
        self._arrived.clear()
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            self._fill(self._protocol, data)
        else:
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(data)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        """Give the data to the protocol's buffer; what it does not take now waits."""
        while data and self._reading and not self._closing:
            buffer = memoryview(protocol.get_buffer(-1))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            protocol.buffer_updated(count)
        if data and not self._closing:
            self._arrived.appendleft(data)

    def _end(self) -> None:
        if not self._closing:
            self._hand_over()
            self._protocol.eof_received()  # type: ignore[attr-defined]  # both kinds have it
            self._close(None)

    def _close(self, error: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self.server.closed()
        self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)


Connected = tuple[asyncio.Transport, asyncio.BaseProtocol]
Factory = Callable[[], asyncio.BaseProtocol]
