"""Pauses of a watch's socket: after a small read for a while, after a large one not at all."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from holdfast.model.base.time import Duration
from holdfast.store.transport.http import ConnectionLost, MemberAddress, connect
from holdfast.store.transport.tls import TlsFiles
from holdfast.store.watch import chunks
from holdfast.store.watch.stream import FULL_READ, MOST_BUFFERED, WatchRejected, WatchStream
from tests.store.certificates import SERVER, Authority

GATHER = Duration(milliseconds=50)
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """Remembers whether it is read from."""

    reading = True

    def write(self, data: object) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def opened(head: bytes = HEAD) -> tuple[WatchStream, Wire]:
    stream, wire = WatchStream(MemberAddress.parse("http://127.0.0.1:1"), "/v3/watch", b"{}", "", GATHER), Wire()
    stream.connection_made(wire)
    hand(stream, head)
    return stream, wire


def hand(stream: WatchStream, data: bytes) -> None:
    while data:
        buffer = stream.get_buffer(-1)
        some, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(some)] = some
        stream.buffer_updated(len(some))


def chunk(size: int) -> bytes:
    """A line of that many bytes; on the wire it takes a few more."""
    return f"{size:x}".encode() + b"\r\n" + b"x" * (size - 1) + b"\n\r\n"


def test_after_a_small_read_the_kernel_gathers_for_a_while() -> None:
    async def main() -> list[bool]:
        stream, wire = opened()
        await asyncio.sleep(2 * GATHER.total_seconds())
        hand(stream, chunk(FULL_READ // 2))
        seen = [wire.reading]
        await stream.read()
        seen.append(wire.reading)
        await asyncio.sleep(2 * GATHER.total_seconds())
        return [*seen, wire.reading]

    assert asyncio.run(main()) == [False, False, True]


def test_after_a_large_read_the_next_follows_at_once_or_the_sender_would_stand_still() -> None:
    async def main() -> bool:
        stream, wire = opened()
        await asyncio.sleep(2 * GATHER.total_seconds())
        hand(stream, chunk(FULL_READ))
        return wire.reading

    assert asyncio.run(main())


def test_a_reader_that_does_not_keep_up_stops_the_reading_until_it_does() -> None:
    async def main() -> list[bool]:
        stream, wire = opened()
        await asyncio.sleep(2 * GATHER.total_seconds())
        for _ in range(MOST_BUFFERED // FULL_READ + 2):
            hand(stream, chunk(FULL_READ))
        await asyncio.sleep(2 * GATHER.total_seconds())
        seen = [wire.reading]
        assert len(await stream.read()) > MOST_BUFFERED
        return [*seen, wire.reading]

    assert asyncio.run(main()) == [False, True]


def test_a_tls_stream_that_ends_while_it_is_not_read_ends_without_an_error_in_the_loop(tmp_path: Path) -> None:
    """asyncio delivers what is left while it shuts the connection down, and does not bear an abort meanwhile."""
    authority = Authority(tmp_path)
    pair = authority.issue("server", [SERVER])
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(pair.cert, pair.key)

    served = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(10))
        await asyncio.sleep(GATHER.total_seconds() / 5)  # it is paused now
        writer.write(chunk(10) + b"0\r\n\r\n")
        writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await asyncio.sleep(2 * GATHER.total_seconds())
        writer.transport.abort()
        served.set()

    async def main() -> list[object]:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving)
        endpoint = MemberAddress.parse(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        stream = WatchStream(endpoint, "/v3/watch", b"{}", "", GATHER)
        await connect(endpoint, TlsFiles(authority.pem).load(), stream)
        with pytest.raises(ConnectionLost):  # noqa: PT012 -- the second read or the third
            while True:
                await stream.read()
        await served.wait()
        server.close()
        return errors

    assert asyncio.run(main()) == []


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "LONGEST_LINE", 1 << 20)

    async def main() -> None:
        stream, _ = opened()
        for _ in range(20):
            hand(stream, b"10000\r\n" + b"x" * (64 << 10) + b"\r\n")
        with pytest.raises(ConnectionLost, match="a line is longer than"):
            await stream.read()

    asyncio.run(main())


def test_long_lines_one_after_the_other_are_no_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "LONGEST_LINE", 100 << 10)

    async def main() -> None:
        stream, _ = opened()
        for _ in range(20):
            hand(stream, b"10000\r\n" + b"x" * (64 << 10) + b"\r\n")
            hand(stream, chunk(2))
        assert len(await stream.read()) == 20 * ((64 << 10) + 2)

    asyncio.run(main())


def test_of_a_refusal_without_end_only_the_beginning_is_kept() -> None:
    async def main() -> None:
        stream, _ = opened(HEAD.replace(b"200 OK", b"400 Bad Request"))
        for _ in range(20):
            hand(stream, b"8000\r\n" + b"x" * (32 << 10) + b"\r\n")
        hand(stream, b"0\r\n\r\n")
        with pytest.raises(WatchRejected) as refused:
            await stream.read()
        assert len(refused.value.body) < 128 << 10

    asyncio.run(main())
