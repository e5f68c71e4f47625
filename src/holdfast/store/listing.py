"""A complete list of a prefix at one revision, and a cheaper one for a reader that has most of it already.

A list that fails half way yields nothing at all (C14). The second time, keys and mod_revisions are listed first and
only values that differ from what the reader holds are fetched, at the same revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.store import wire
from holdfast.store.api import Entry, Snapshot
from holdfast.store.gateway import Gateway, Question

FIRST_PAGE = 1_000
PAGE = 5_000
KEYS_PAGE = 10_000
PAGE_BYTES = 4 << 20
VALUES_PER_CALL = 128
REFETCH_ABOVE = 0.25

_RANGE = wire.decoder(wire.RangeReply)
_TXN = wire.decoder(wire.TxnReply)


async def read_range(gateway: Gateway, request: wire.RangeRequest) -> wire.RangeReply:
    return await gateway.call(Question(wire.RANGE, wire.encode(request), _RANGE))


def next_page(entries: Sequence[Entry], most: int) -> int:
    """How many keys the next page should ask for, so that a page of large values stays small in memory."""
    size = sum([len(entry.value) + len(entry.key) + 64 for entry in entries])
    return max(1, min(most, PAGE_BYTES * len(entries) // size))


async def full_list(gateway: Gateway, prefix: bytes) -> Snapshot:
    """Everything under `prefix`, with values."""
    first, end = wire.span(prefix)
    items: list[Entry] = []
    revision, size = 0, FIRST_PAGE
    while True:
        reply = await read_range(gateway, wire.RangeRequest(first, end, size, revision))
        revision = revision or reply.header.revision
        items += reply.kvs
        if not reply.more:
            return Snapshot(revision, items)
        first = reply.kvs[-1].key + b"\0"
        size = next_page(reply.kvs, PAGE)


async def changed_list(gateway: Gateway, prefix: bytes, held: Mapping[bytes, int]) -> Snapshot:
    """Everything under `prefix`, values only where they differ from what is held."""
    first, end = wire.span(prefix)
    changed: list[bytes] = []
    unchanged: list[bytes] = []
    revision, more = 0, True
    while more:
        reply = await read_range(gateway, wire.RangeRequest(first, end, KEYS_PAGE, revision, keys_only=True))
        revision = revision or reply.header.revision
        for entry in reply.kvs:
            same = held.get(entry.key) == entry.mod_revision
            (unchanged if same else changed).append(entry.key)
        more = reply.more
        if more:
            first = reply.kvs[-1].key + b"\0"
    if len(changed) > REFETCH_ABOVE * (len(changed) + len(unchanged)):
        return await full_list(gateway, prefix)
    return Snapshot(revision, await _values(gateway, changed, revision), unchanged)


async def _values(gateway: Gateway, keys: Sequence[bytes], revision: int) -> list[Entry]:
    entries: list[Entry] = []
    for i in range(0, len(keys), VALUES_PER_CALL):
        reads = [
            wire.RequestOp(request_range=wire.RangeRequest(key, revision=revision))
            for key in keys[i : i + VALUES_PER_CALL]
        ]
        reply = await gateway.call(Question(wire.TXN, wire.encode(wire.TxnRequest(success=reads)), _TXN))
        for response in reply.responses:
            if response.response_range is not None:
                entries += response.response_range.kvs
    return entries
