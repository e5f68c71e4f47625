"""Complete lists of a prefix at one revision, and cheaper ones for a reader that holds most of it already.

Both come in parts, and only the last part makes a list complete: one that fails half way raises, and its parts are void
(C14). A full list fetches the next part while the reader works on one. A list of changes reads keys and mod_revisions
first and fetches, at the same revision, only values that differ from what the reader holds; the newest value always,
because it identifies the store's history later (`continuity`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from holdfast.store.api import Entry, Snapshot
from holdfast.store.transport import wire
from holdfast.store.transport.gateway import Gateway, GatewayCall

FIRST_PAGE = 1_000
PAGE = 5_000
KEYS_PAGE = 10_000
PAGE_BYTES = 4 << 20
VALUES_PER_CALL = 128
REFETCH_ABOVE = 0.25

_RANGE = wire.decoder(wire.RangeReply)
_TXN = wire.decoder(wire.TxnReply)


async def read_range(gateway: Gateway, request: wire.RangeRequest) -> wire.RangeReply:  # protection: C17
    return await gateway.call(GatewayCall(wire.RANGE, wire.encode(request), _RANGE))


def next_page(entries: Sequence[Entry], most: int) -> int:
    """Return the size of the next page, so that a page of large values stays small in memory."""
    size = sum([len(entry.value) for entry in entries]) + len(entries) * (len(entries[-1].key) + 64)
    return max(1, min(most, PAGE_BYTES * len(entries) // size))


async def full_list(gateway: Gateway, prefix: bytes) -> AsyncGenerator[Snapshot, None]:  # protection: C14
    """List everything under `prefix`, with values."""
    start, end = wire.span(prefix)
    pending = asyncio.create_task(read_range(gateway, wire.RangeRequest(start, end, FIRST_PAGE)))
    revision, first, more = 0, True, True
    try:
        while more:
            reply = await pending
            revision, more = revision or reply.header.revision, reply.more
            if more:
                start, size = reply.kvs[-1].key + b"\0", next_page(reply.kvs, PAGE)
                pending = asyncio.create_task(read_range(gateway, wire.RangeRequest(start, end, size, revision)))
            yield Snapshot(revision, reply.kvs, first=first, more=more)
            first = False
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)


async def whole(parts: AsyncGenerator[Snapshot, None]) -> Snapshot:
    """Join the parts of a list."""
    revision, items, unchanged = 0, list[Entry](), list[bytes]()
    async for part in parts:
        revision = part.revision
        items += part.items
        unchanged += part.unchanged
    return Snapshot(revision, items, unchanged)


async def changed_list(gateway: Gateway, prefix: bytes, held: Mapping[bytes, int]) -> AsyncGenerator[Snapshot, None]:
    """List everything under `prefix`, with values only where they differ from what is held."""
    revision, changed, unchanged = await _compare(gateway, prefix, held)
    if len(changed) > REFETCH_ABOVE * (len(changed) + len(unchanged)):
        async with aclosing(full_list(gateway, prefix)) as parts:
            async for part in parts:
                yield part
        return
    yield Snapshot(revision, [], unchanged, more=bool(changed))
    for done in range(0, len(changed), VALUES_PER_CALL):
        entries = await _values(gateway, changed[done : done + VALUES_PER_CALL], revision)
        yield Snapshot(revision, entries, first=False, more=done + VALUES_PER_CALL < len(changed))


async def _compare(gateway: Gateway, prefix: bytes, held: Mapping[bytes, int]) -> tuple[int, list[bytes], list[bytes]]:
    """Return the revision of the list, the keys that differ from what is held, and those that do not."""
    first, end = wire.span(prefix)
    changed: list[bytes] = []
    unchanged: list[bytes] = []
    revision, more = 0, True
    newest: Entry | None = None
    while more:
        reply = await read_range(gateway, wire.RangeRequest(first, end, KEYS_PAGE, revision, keys_only=True))
        revision = revision or reply.header.revision
        for entry in reply.kvs:
            same = held.get(entry.key) == entry.mod_revision
            (unchanged if same else changed).append(entry.key)
            if newest is None or entry.mod_revision > newest.mod_revision:
                newest = entry
        more = reply.more
        if more:
            first = reply.kvs[-1].key + b"\0"
    if newest is not None and held.get(newest.key) == newest.mod_revision:
        unchanged.remove(newest.key)
        changed.append(newest.key)
    return revision, changed, unchanged


async def _values(gateway: Gateway, keys: Sequence[bytes], revision: int) -> list[Entry]:
    reads = [wire.RequestOp(request_range=wire.RangeRequest(key, revision=revision)) for key in keys]
    reply = await gateway.call(GatewayCall(wire.TXN, wire.encode(wire.TxnRequest(success=reads)), _TXN))
    return [entry for each in reply.responses if each.response_range is not None for entry in each.response_range.kvs]
