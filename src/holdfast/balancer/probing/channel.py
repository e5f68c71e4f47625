"""The line between balancer and prober: a unix socket, orders one way, reports the other, each in one frame.

Orders are level, so the line may break at any time: the balancer's end opens it again and repeats what is wanted. The
prober's end never waits for the balancer; while that does not read, it says so, and results wait (one per target).
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
_BEHIND = 1 << 20
_RETRY = 0.1
_encoder = msgspec.msgpack.Encoder()
_orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
_reports = msgspec.msgpack.Decoder(ProbeReport)


class BadMessage(Exception):
    """The other end says something that is not understood."""


def frame(message: Order | ProbeReport) -> bytes:
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


async def _read(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame's content; None when the line was closed."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _LARGEST:
            raise BadMessage(f"a frame of {length:,} bytes is announced")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class ProberServer:
    """Listens for the balancer. There is one; a new connection means that it has started anew."""

    def __init__(self, path: Path, obey: Callable[[Order], None]) -> None:
        self._path = path
        self._obey = obey
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
        """False: there is nobody to tell, or the balancer has not read the last megabyte yet."""
        if self._balancer is None or self._balancer.transport.get_write_buffer_size() > _BEHIND:
            return False
        self._balancer.write(frame(report))
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._balancer is not None:
            self._balancer.close()
        self._balancer = writer
        try:
            while (content := await _read(reader)) is not None:
                self._obey(_orders.decode(content))
        except (BadMessage, msgspec.MsgspecError) as error:
            log.error(f"the balancer's orders are not understood, it has to call again: {error}")
        finally:
            if self._balancer is writer:
                self._balancer = None
            writer.close()


class ProberClient:
    """Calls the prober, tells it what is wanted each time the line is opened, and hands over its reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wanted = Assignment(())
        self._prober: asyncio.StreamWriter | None = None

    def assign(self, wanted: Assignment) -> None:
        """From now on this is to be probed, and nothing else."""
        self._wanted = wanted
        self._send(wanted)

    def pace(self, paces: Mapping[str, ProbeInterval]) -> None:
        """These targets have another pace from now on."""
        kept = {
            name: pace for name, pace in {**self._wanted.paces, **paces}.items() if pace is not ProbeInterval.NORMAL
        }
        self._wanted = msgspec.structs.replace(self._wanted, paces=kept)
        self._send(IntervalChange(dict(paces)))

    async def reports(self) -> AsyncGenerator[ProbeReport, None]:
        """All reports, over all lines, for ever. Their absence is for the reader to judge."""
        while True:
            try:
                with short_name(self._path) as name:
                    reader, writer = await asyncio.open_unix_connection(name)
            except OSError:
                await asyncio.sleep(_RETRY)
                continue
            async with contextlib.aclosing(self._listen(reader, writer)) as heard:
                async for report in heard:
                    yield report
            await asyncio.sleep(_RETRY)

    async def _listen(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> AsyncGenerator[ProbeReport, None]:
        self._prober = writer
        self._send(self._wanted)
        try:
            while (content := await _read(reader)) is not None:
                yield _reports.decode(content)
        except (BadMessage, msgspec.MsgspecError) as error:
            log.error(f"the prober's reports are not understood, it is called again: {error}")
        finally:
            self._prober = None
            writer.close()

    def _send(self, order: Order) -> None:
        if self._prober is not None:
            self._prober.write(frame(order))
