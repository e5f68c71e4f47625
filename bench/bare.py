"""What etcd's JSON gateway gives to a program that does nothing else: one connection, no client, nothing kept.

A rate of ours says something only beside that of the bare wire on the same machine in the same run: most of the time
per key is etcd's own, and differs by a factor of three from one machine to another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.client import HTTPConnection

import msgspec

from bench import fleet
from bench.cost import Cost, Work
from bench.gauges import Stopwatch
from holdfast.store.api import Put, prefix_end
from holdfast.store.http import Endpoint

OPERATIONS = 127
"""As many as a fenced transaction has."""
PAGE = 5_000


class _Item(msgspec.Struct, gc=False):
    key: bytes
    value: bytes = b""


class _Page(msgspec.Struct):
    kvs: list[_Item] = []
    more: bool = False


_page = msgspec.json.Decoder(_Page)


async def bare_writer(work: Work) -> AsyncIterator[Cost]:
    """A part: stores the endpoints in transactions, one after the other, without comparing anything."""
    puts = list(fleet.endpoints(work.keys, generation=work.generation))
    connection = _connected(work.endpoint)
    watch = Stopwatch()
    for first in range(0, len(puts), OPERATIONS):
        operations = [{"request_put": _fields(put)} for put in puts[first : first + OPERATIONS]]
        _ask(connection, "/v3/kv/txn", {"success": operations})
    yield Cost(len(puts), watch.wall_s, watch.cpu_s)


async def bare_reader(work: Work) -> AsyncIterator[Cost]:
    """A part: lists the endpoints in pages and drops them."""
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


def _connected(endpoint: str) -> HTTPConnection:
    where = Endpoint.parse(endpoint)
    return HTTPConnection(where.host, where.port)


def _ask(connection: HTTPConnection, path: str, question: dict[str, object]) -> bytes:
    connection.request("POST", path, msgspec.json.encode(question))
    return connection.getresponse().read()


def _fields(put: Put) -> dict[str, bytes]:
    return {"key": put.key, "value": put.value}
