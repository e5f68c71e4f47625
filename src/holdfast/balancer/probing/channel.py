"""Channel between balancer and prober: a unix socket with framed messages, orders one way and reports the other.

Orders are level-based, so the connection may break at any time: the client reconnects and sends the assignment again.
The server never waits for the balancer; while the balancer does not read, `send` returns False and results wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from holdfast.balancer.probing.messages import Assignment, IntervalChange, Order, ProbeInterval, ProbeReport
from holdfast.runtime.control import short_name

log = structlog.get_logger(__name__)

_LENGTH = struct.Struct("!I")
_LARGEST = 64 << 20
_SEND_BUFFER = 1 << 20
_RETRY = 0.1
_encoder = msgspec.msgpack.Encoder()
_orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
_reports = msgspec.msgpack.Decoder(ProbeReport)


class BadMessage(Exception):
    """The other end sent something that cannot be decoded."""


def frame(message: Order | ProbeReport) -> bytes:
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


async def _read(reader: asyncio.StreamReader) -> bytes | None:
    """Read the content of the next frame; None when the connection was closed."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _LARGEST:
            raise BadMessage(f"a frame of {length:,} bytes is larger than {_LARGEST:,}")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class ProberServer:
    """Prober's end. There is one balancer; a new connection means that it has restarted."""

    def __init__(self, path: Path, on_order: Callable[[Order], None]) -> None:
        self._path = path
        self._on_order = on_order
        self._server: asyncio.Server | None = None
        self._balancer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> ProberServer:
        self._path.unlink(missing_ok=True)
        with short_name(self._path) as name:
            self._server = await asyncio.start_unix_server(self._serve, path=name)
        self._path.chmod(0o660)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._server is not None
        self._server.close()
        if self._balancer is not None:
            self._balancer.close()
        self._path.unlink(missing_ok=True)

    def send(self, report: ProbeReport) -> bool:
        """Send a report. Returns False without a balancer, or when it has not read the last megabyte yet."""
        if self._balancer is None or self._balancer.transport.get_write_buffer_size() > _SEND_BUFFER:
            return False
        self._balancer.write(frame(report))
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._balancer is not None:
            self._balancer.close()
        self._balancer = writer
        try:
            while (content := await _read(reader)) is not None:
                self._on_order(_orders.decode(content))
        except (BadMessage, msgspec.MsgspecError) as error:
            log.error("cannot decode an order of the balancer; closing the connection", error=str(error))
        finally:
            if self._balancer is writer:
                self._balancer = None
            writer.close()


class ProberClient:
    """Balancer's end. Sends the assignment on each connect, and yields the reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wanted = Assignment(())
        self._prober: asyncio.StreamWriter | None = None

    def assign(self, wanted: Assignment) -> None:
        """Replace the assignment."""
        self._wanted = wanted
        self._send(wanted)

    def set_intervals(self, intervals: Mapping[str, ProbeInterval]) -> None:
        """Change the interval of these targets."""
        kept = {
            name: interval
            for name, interval in {**self._wanted.intervals, **intervals}.items()
            if interval is not ProbeInterval.NORMAL
        }
        self._wanted = msgspec.structs.replace(self._wanted, intervals=kept)
        self._send(IntervalChange(dict(intervals)))

    async def reports(self) -> AsyncGenerator[ProbeReport, None]:
        """Yield reports for ever, over all connections. The caller judges a silence."""
        while True:
            try:
                with short_name(self._path) as name:
                    reader, writer = await asyncio.open_unix_connection(name)
            except OSError:
                await asyncio.sleep(_RETRY)
                continue
            async with contextlib.aclosing(self._receive(reader, writer)) as received:
                async for report in received:
                    yield report
            await asyncio.sleep(_RETRY)

    async def _receive(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> AsyncGenerator[ProbeReport, None]:
        self._prober = writer
        self._send(self._wanted)
        try:
            while (content := await _read(reader)) is not None:
                yield _reports.decode(content)
        except (BadMessage, msgspec.MsgspecError) as error:
            log.error("cannot decode a report of the prober; reconnecting", error=str(error))
        finally:
            self._prober = None
            writer.close()

    def _send(self, order: Order) -> None:
        if self._prober is not None:
            self._prober.write(frame(order))
