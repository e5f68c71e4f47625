"""Complete lists of prefixes at one revision, and cheaper ones for a reader that holds most of it already.

Both come in parts, and only the last part makes a list complete: one that fails half way raises, and its parts are void
(C14). A page, or a portion of values, that fails is read again at the same revision, at whichever member answers; only
when that revision is gone, or at the first of its kind, does the list fail (C56). A full list fetches the next part
while the reader works on one. A list of changes reads keys and mod_revisions first and fetches, at the same revision,
only values that may differ from what the reader holds; the newest value always, because it identifies the store's
history later (`continuity`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from holdfast.store.api import Compacted, Entry, Keys, Snapshot, StoreAway, span
from holdfast.store.transport import wire
from holdfast.store.transport.gateway import Gateway, GatewayCall

FIRST_PAGE = 1_000
PAGE = 5_000
KEYS_PAGE = 10_000
PAGE_BYTES = 4 << 20
VALUES_PER_CALL = 127
"""etcd accepts 128 reads in a transaction; after a failure one more proves the history."""
REFETCH_ABOVE = 0.25
ATTEMPTS, PAUSE_S = 3, 0.2
PROOFS = 8
"""Known entries, the newest ones, that are compared with the store's before anything of it is taken as unchanged."""

Wait = Callable[[StoreAway], Awaitable[None]]
"""Waits before the next attempt after this failure, or raises it."""

_MOD_REVISION = attrgetter("mod_revision")
_RANGE = wire.decoder(wire.RangeReply)
_TXN = wire.decoder(wire.TxnReply)


async def read_range(gateway: Gateway, request: wire.RangeRequest) -> wire.RangeReply:  # protection: C17
    return await gateway.call(GatewayCall(wire.RANGE, wire.encode(request), _RANGE))


async def read_next_page(  # protection: C56
    gateway: Gateway, request: wire.RangeRequest, last: Entry, wait: Wait
) -> wire.RangeReply:
    """Read the page after `last`, for as long as it takes. After a failure the page begins with `last` again: the store
    that answers then may be a restored one, and a list of two histories would be wrong."""
    try:
        return await read_range(gateway, request)
    except StoreAway as error:
        await wait(error)
    again = msgspec.structs.replace(request, key=last.key, limit=request.limit + 1)
    while True:
        try:
            reply = await read_range(gateway, again)
        except StoreAway as error:
            await wait(error)
            continue
        if not reply.kvs or reply.kvs[0] != last:
            raise Compacted(0)
        return msgspec.structs.replace(reply, kvs=reply.kvs[1:])


def few_attempts() -> Wait:
    """Return a wait for a caller that has a deadline: after `ATTEMPTS` of one page the failure is raised."""
    failures = 0

    async def wait(error: StoreAway) -> None:
        nonlocal failures
        failures += 1
        if failures >= ATTEMPTS:
            raise error
        await asyncio.sleep(PAUSE_S)

    return wait


def next_page(entries: Sequence[Entry], most: int) -> int:
    """Return the size of the next page, so that a page of large values stays small in memory."""
    size = sum([len(entry.value) for entry in entries]) + len(entries) * (len(entries[-1].key) + 64)
    return max(1, min(most, PAGE_BYTES * len(entries) // size))


async def full_list(  # protection: C14
    gateway: Gateway, prefixes: Sequence[Keys], wait: Wait
) -> AsyncGenerator[Snapshot, None]:
    """List everything under `prefixes`, with values."""
    (start, end), *further = [(each.first, each.end) for each in map(span, prefixes)]
    pending = asyncio.create_task(read_range(gateway, wire.RangeRequest(start, end, FIRST_PAGE)))
    revision, first, more = 0, True, True
    try:
        while more:
            reply = await pending
            revision, more = revision or reply.header.revision, reply.more or bool(further)
            if reply.more:
                last, size = reply.kvs[-1], next_page(reply.kvs, PAGE)
                request = wire.RangeRequest(last.key + b"\0", end, size, revision)
                pending = asyncio.create_task(read_next_page(gateway, request, last, wait))
            elif further:
                start, end = further.pop(0)
                request = wire.RangeRequest(start, end, FIRST_PAGE, revision)
                pending = asyncio.create_task(read_range(gateway, request))
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


async def changed_list(
    gateway: Gateway, prefixes: Sequence[Keys], held: Mapping[bytes, int], known: Mapping[bytes, Entry], wait: Wait
) -> AsyncGenerator[Snapshot, None]:
    """List everything under `prefixes`, with values only where they may differ from what is held.

    After a restore the same revision can have another value (C29). `known` has some of the entries that are held: the
    newest one that the store has with the same value proves its history up to there, and what was written later is
    fetched, changed or not."""
    found = await _compare(gateway, prefixes, held, known, wait)
    unchanged = found.unchanged(await _proven(gateway, found))
    fetch = [*found.changed, *(entry.key for entry in found.same if entry.key not in unchanged)]
    if len(fetch) > REFETCH_ABOVE * (len(found.changed) + len(found.same)):
        async with aclosing(full_list(gateway, prefixes, wait)) as parts:
            async for part in parts:
                yield part
        return
    yield Snapshot(found.revision, [], list(unchanged), more=bool(fetch))
    last: list[Entry] = []
    for done in range(0, len(fetch), VALUES_PER_CALL):
        keys = fetch[done : done + VALUES_PER_CALL]
        entries = await read_next_values(gateway, keys, found.revision, last, wait)
        last = entries[-1:]  # the reader frees the others
        yield Snapshot(found.revision, entries, first=False, more=done + VALUES_PER_CALL < len(fetch))


@dataclass(slots=True)
class _Comparison:
    """Keys of a list, by what the reader holds."""

    revision: int
    changed: list[bytes] = field(default_factory=list)
    same: list[Entry] = field(default_factory=list)
    """Entries, without values, whose mod_revision is the one that is held."""
    known: list[Entry] = field(default_factory=list)
    """Those of them whose value is known."""
    newest: Entry | None = None

    def add(self, page: Sequence[Entry], held: Mapping[bytes, int], known: Mapping[bytes, Entry]) -> None:
        for entry in page:
            if held.get(entry.key) == entry.mod_revision:
                self.same.append(entry)
            else:
                self.changed.append(entry.key)
        values = [known[entry.key] for entry in page if entry.key in known]
        self.known += [value for value in values if held.get(value.key) == value.mod_revision]
        newest = max(page, key=_MOD_REVISION, default=None)
        if newest is not None and (self.newest is None or newest.mod_revision > self.newest.mod_revision):
            self.newest = newest

    def unchanged(self, proven: int) -> dict[bytes, None]:
        """Return the keys whose values need no fetching where history is proven up to a revision."""
        newest = self.newest.key if self.newest is not None else b""
        return {entry.key: None for entry in self.same if entry.mod_revision <= proven and entry.key != newest}


async def _compare(
    gateway: Gateway, prefixes: Sequence[Keys], held: Mapping[bytes, int], known: Mapping[bytes, Entry], wait: Wait
) -> _Comparison:
    found = _Comparison(0)
    for each in map(span, prefixes):
        first, end = each.first, each.end
        reply = await read_range(gateway, wire.RangeRequest(first, end, KEYS_PAGE, found.revision, keys_only=True))
        found.revision = found.revision or reply.header.revision
        found.add(reply.kvs, held, known)
        while reply.more:
            last = reply.kvs[-1]
            request = wire.RangeRequest(last.key + b"\0", end, KEYS_PAGE, found.revision, keys_only=True)
            reply = await read_next_page(gateway, request, last, wait)
            found.add(reply.kvs, held, known)
    return found


async def _proven(gateway: Gateway, found: _Comparison) -> int:  # protection: C29
    """Return the revision up to which the store has the history that is held; 0 if nothing proves it."""
    newest = sorted(found.known, key=_MOD_REVISION)[-PROOFS:]
    if not newest:
        return 0
    stored = await _values(gateway, [entry.key for entry in newest], found.revision)
    return max((entry.mod_revision for entry in newest if entry in stored), default=0)


async def read_next_values(  # protection: C56
    gateway: Gateway, keys: Sequence[bytes], revision: int, last: list[Entry], wait: Wait
) -> list[Entry]:
    """Read the values after `last`, for as long as it takes. As for a page, `last` is read again after a failure; the
    first values have nothing that proves the history of the store that answers then, so their failure is raised."""
    try:
        return await _values(gateway, keys, revision)
    except StoreAway as error:
        if not last:
            raise
        await wait(error)
    while True:
        try:
            entries = await _values(gateway, [last[0].key, *keys], revision)
        except StoreAway as error:
            await wait(error)
            continue
        if entries[:1] != last:
            raise Compacted(0)
        return entries[1:]


async def _values(gateway: Gateway, keys: Sequence[bytes], revision: int) -> list[Entry]:
    reads = [wire.RequestOp(request_range=wire.RangeRequest(key, revision=revision)) for key in keys]
    reply = await gateway.call(GatewayCall(wire.TXN, wire.encode(wire.TxnRequest(success=reads)), _TXN))
    return [entry for each in reply.responses if each.response_range is not None for entry in each.response_range.kvs]
