"""Baseline without our client: plain requests to etcd's JSON gateway on one connection, keeping nothing.

Our rates mean something only next to this baseline on the same machine in the same run: most of the time per key is
etcd's own, and differs by a factor of three from one machine to another.
"""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from http.client import HTTPConnection

import msgspec

from bench import fleet
from bench.benchmark import Unmeasurable
from bench.cost import Cost, Work
from bench.gauges import Stopwatch
from holdfast.store.api import Put, prefix_end
from holdfast.store.transport.http import MemberAddress

OPERATIONS = 127
"""Operations per transaction, as many as a fenced one has."""
PAGE = 5_000
GATHER_S = 0.02
"""Pause between two reads of a watch, so that one read takes many events."""
BUFFER = 1 << 20


class _Item(msgspec.Struct, gc=False):
    key: bytes
    value: bytes = b""


class _Page(msgspec.Struct):
    kvs: list[_Item] = []
    more: bool = False


_page = msgspec.json.Decoder(_Page)


async def bare_writer(work: Work) -> AsyncIterator[Cost]:
    """Part: store the endpoints in transactions, one after the other, without comparing anything."""
    puts = list(fleet.endpoints(work.keys, generation=work.generation))
    connection = _connected(work.endpoint)
    watch = Stopwatch()
    for first in range(0, len(puts), OPERATIONS):
        operations = [{"request_put": _fields(put)} for put in puts[first : first + OPERATIONS]]
        _ask(connection, "/v3/kv/txn", {"success": operations})
    yield Cost(len(puts), watch.wall_s, watch.cpu_s)


async def bare_reader(work: Work) -> AsyncIterator[Cost]:
    """Part: list the endpoints in pages and drop them."""
    connection = _connected(work.endpoint)
    first, end = fleet.ENDPOINTS, prefix_end(fleet.ENDPOINTS)
    watch = Stopwatch()
    found, more = 0, True
    while more:
        page = _page.decode(_ask(connection, "/v3/kv/range", {"key": first, "range_end": end, "limit": PAGE}))
        found += len(page.kvs)
        more = page.more
        first = page.kvs[-1].key + b"\0" if more else first
    yield Cost(found, watch.wall_s, watch.cpu_s)


class Watched(msgspec.Struct, frozen=True):
    """Job of a bare watcher: the prefix to watch, and the number of events after which it is done."""

    endpoint: str
    prefix: str
    events: int


class _Change(msgspec.Struct, gc=False):
    kv: _Item


class _Changes(msgspec.Struct, gc=False):
    events: list[_Change] = []
    created: bool = False


class _Message(msgspec.Struct, gc=False):
    result: _Changes


_message = msgspec.json.Decoder(_Message)
_value = msgspec.json.Decoder()


async def bare_watcher(work: Watched) -> AsyncIterator[Cost]:
    """Part: read a watch from a plain socket, decode the values and drop them."""
    where, prefix = MemberAddress.parse(work.endpoint), work.prefix.encode()
    request = msgspec.json.encode({"create_request": {"key": prefix, "range_end": prefix_end(prefix)}})
    with socket.create_connection((where.host, where.port)) as wire:
        head = f"POST /v3/watch HTTP/1.1\r\nHost: {where.authority}\r\nContent-Length: {len(request)}\r\n\r\n"
        wire.sendall(head.encode() + request)
        stream = _Chunked()
        while not any(_message.decode(line).result.created for line in stream.lines(wire.recv(BUFFER))):
            time.sleep(GATHER_S)  # noqa: ASYNC251 -- nothing else runs in this process
        yield Cost()
        watch, seen = Stopwatch(), 0
        while seen < work.events:
            time.sleep(GATHER_S)  # noqa: ASYNC251
            for line in stream.lines(wire.recv(BUFFER)):
                events = _message.decode(line).result.events
                seen += len(events)
                for event in events:
                    _value.decode(event.kv.value)
        yield Cost(seen, watch.wall_s, watch.cpu_s)


class _Chunked:
    """Splits a chunked response body into lines."""

    def __init__(self) -> None:
        self._raw = b""
        self._line = b""
        self._in_body = False

    def lines(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete."""
        if not data:
            raise Unmeasurable("etcd ended a watch; run it again on a quieter machine")
        raw = self._raw + data
        if not self._in_body:
            head, found, body = raw.partition(b"\r\n\r\n")
            self._in_body, raw = bool(found), body if found else head
        content, position = [self._line], 0
        while self._in_body and (size_ends := raw.find(b"\r\n", position)) >= 0:
            start = size_ends + 2
            end = start + int(raw[position:size_ends], 16)
            if len(raw) < end + 2:
                break
            content.append(raw[start:end])
            position = end + 2
        self._raw = raw[position:]
        *whole, self._line = b"".join(content).split(b"\n")
        return whole


def _connected(endpoint: str) -> HTTPConnection:
    where = MemberAddress.parse(endpoint)
    return HTTPConnection(where.host, where.port)


def _ask(connection: HTTPConnection, path: str, question: dict[str, object]) -> bytes:
    connection.request("POST", path, msgspec.json.encode(question))
    return connection.getresponse().read()


def _fields(put: Put) -> dict[str, bytes]:
    return {"key": put.key, "value": put.value}
