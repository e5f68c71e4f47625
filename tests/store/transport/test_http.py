"""Answers without end: the connection is given up, whatever their form."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.store.transport import http
from holdfast.store.transport.http import ConnectionLost, HttpConnection, MemberAddress, connect

PIECE = b"x" * (64 << 10)
HEADS = {
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a huge length": b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    "a refusal": b"HTTP/1.1 500 Internal Server Error\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@contextlib.asynccontextmanager
async def connected(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[HttpConnection]:
    """A connection to a server with that answer, which has ended when the block has."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await answer(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        endpoint = MemberAddress.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        connection = await connect(endpoint, None, HttpConnection(endpoint))
        try:
            yield connection
        finally:
            connection.close()
            await ended.wait()


@pytest.mark.parametrize("form", HEADS)
def test_an_answer_without_end_is_given_up(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LARGEST_ANSWER", 1 << 20)
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEADS[form])
        piece = b"%x\r\n%s\r\n" % (len(PIECE), PIECE) if b"chunked" in HEADS[form] else PIECE
        while sent < 64 << 20:
            writer.write(piece)
            sent += len(PIECE)
            await writer.drain()

    async def main() -> None:
        async with connected(flood) as connection:
            with pytest.raises(ConnectionLost, match="the answer is longer than"):
                await connection.request("POST", "/v3/kv/range", b"{}")
            assert not connection.usable

    asyncio.run(main())
    assert sent < 64 << 20, "the peer must notice that nobody reads on"


def test_answers_below_the_limit_are_counted_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LARGEST_ANSWER", len(PIECE))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(PIECE), PIECE))

    async def main() -> None:
        async with connected(answer) as connection:
            for _ in range(3):
                assert (await connection.request("GET", "/")).body == PIECE

    asyncio.run(main())
