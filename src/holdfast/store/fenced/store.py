"""`FencedStore`: writes of one leader's term.

Every write is a transaction that compares the create-revision of the leader key with the term (rule 3). A deposed
leader's write fails with `Deposed`, and nothing of it is written. A plan of many writes goes in packed transactions,
several in flight, with one result per write. When the store is out of space nothing of a plan is written, deletes
included (C35): etcd would accept the deletes and refuse the puts, and an endpoint that moves would lose its old key and
get no new one.

In a store restored from a backup a new term can have the number of an old one (C42). Until its next renewal the old
leader passes this comparison; its batches then fail at the comparison of the store's mark, which is not the last one
that it wrote, and its verdicts at that of the identity. A leader without a mark of its own term passes that, too: it
writes what the inventory wants now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.store.api import (
    Aspect,
    Compare,
    Delete,
    Deposed,
    Entry,
    Get,
    NoSpace,
    Operation,
    Put,
    Store,
    StoreAway,
    StoreError,
    StoreRefused,
    TxnResult,
    WriteConflict,
)
from holdfast.store.boottime import Now, boot_now
from holdfast.store.fenced.packing import FencedWrite, Packing, Window

IN_FLIGHT = 4
TRIES = 3

Failure = StoreError | StoreAway


class WriteResult(msgspec.Struct, frozen=True):
    """Result of one write of a plan: its revision, or the error.

    `error` is per object (`TooLarge`, `WriteConflict`, `LeaseGone`) or, where `stop` is set, ends the whole plan:
    `Deposed`, `NoSpace`, `StoreRefused`, `StoreAway`. A write with an `uncertain` `StoreAway` may have been applied.
    """

    write: FencedWrite
    revision: int = 0
    error: Failure | None = None

    @property
    def stop(self) -> bool:
        return isinstance(self.error, Deposed | NoSpace | StoreRefused | StoreAway)


class FencedStore:
    """Writes of one term. Reads need no fence: use the store itself."""

    def __init__(self, store: Store, leader_key: bytes, term: int, *, now: Now = boot_now) -> None:
        if term <= 0:
            raise ValueError("a term is the create-revision of the leader key, which is never 0")
        self.store = store
        self.term = term
        self._leader_key = leader_key
        self._fence = Compare(leader_key, Aspect.CREATE_REVISION, term)
        self._now = now
        self._window = Window()

    async def txn(  # protection: C1, C2
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        """Run a transaction of this term. Raises `Deposed` if the term is over, whatever the other comparisons say."""
        result = await self.store.txn([self._fence, *compares], then, [*otherwise, Get(self._leader_key)])
        if result.succeeded:
            return result
        self._check(result.results[-1])
        return TxnResult(False, result.revision, result.results[:-1])

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        return (await self.txn([], [Put(key, value, lease)])).revision

    async def delete(self, key: bytes) -> int:
        (deleted,) = (await self.txn([], [Delete(key)])).results
        assert isinstance(deleted, int)
        return deleted

    async def bulk(
        self, writes: Sequence[FencedWrite], attempted: Callable[[], None] = lambda: None
    ) -> Sequence[WriteResult]:
        """Write a plan and return one result per write, in their order. Writes of different keys may be applied in any
        order: what must come first goes in an earlier call. `attempted` is called after each transaction."""
        plan = _Plan(writes, Packing(writes, self._window))
        await self._check_space(plan)
        sending: set[asyncio.Task[None]] = set()
        try:
            while True:
                while len(sending) < IN_FLIGHT and (pack := plan.packing.next()):
                    sending.add(asyncio.create_task(self._send(plan, pack)))
                if not sending:
                    return plan.finished()
                done, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                attempted()
        finally:
            for task in sending:
                task.cancel()

    async def _check_space(self, plan: _Plan) -> None:  # protection: C35
        """End a plan with deletes before it starts if the store is out of space: etcd would accept the deletes."""
        if not any(isinstance(op, Delete) for write in plan.writes for op in write.operations):
            return
        try:
            if "NOSPACE" in await self.store.alarms():
                plan.end(NoSpace("etcd is out of space, so nothing is written, deletes included; make room first"))
        except (StoreAway, StoreError) as error:
            plan.end(error)

    async def _send(self, plan: _Plan, pack: Sequence[int]) -> None:
        compares = [self._fence, *(compare for n in pack for compare in plan.writes[n].compares)]
        sent = self._now()
        try:
            result = await self.store.txn(compares, [op for n in pack for op in plan.writes[n].operations])
            self._window.took(self._now() - sent)
            if result.succeeded:
                plan.written(pack, result.revision)
            else:
                await self._find_conflicts(plan, pack)
        except (Deposed, NoSpace, StoreRefused, StoreAway) as error:
            plan.failed(pack, error)
            plan.end(_unsent(error))
        except StoreError as error:
            if len(pack) == 1:
                plan.failed(pack, error)
            else:
                plan.resend(pack, alone=True)
        finally:
            plan.packing.done(pack)

    async def _find_conflicts(self, plan: _Plan, pack: Sequence[int]) -> None:
        """Find the comparison that failed, the fence or those of single objects, and send the other writes again."""
        keys = sorted({compare.key for n in pack for compare in plan.writes[n].compares})
        found = await self.store.txn([], [Get(self._leader_key), *map(Get, keys)])
        self._check(found.results[0])
        entries = {key: _single(result) for key, result in zip(keys, found.results[1:], strict=True)}
        stale = [n for n in pack if not all(c.holds(entries[c.key]) for c in plan.writes[n].compares)]
        for n in stale:
            plan.failed([n], WriteConflict(plan.writes[n].key))
        plan.retry([n for n in pack if n not in stale])

    def _check(self, leader: int | Sequence[Entry]) -> None:
        entry = _single(leader)
        if entry is None or entry.create_revision != self.term:
            now = f"term {entry.create_revision} leads now" if entry else "there is no leader now"
            raise Deposed(f"term {self.term} is over: {now}; nothing was written")


class _Plan:
    """The results of one bulk write as they come in."""

    def __init__(self, writes: Sequence[FencedWrite], packing: Packing) -> None:
        self.writes = writes
        self.packing = packing
        self._results: dict[int, WriteResult] = {}
        self._tries: dict[int, int] = {}
        self._ended: Failure | None = None

    def written(self, pack: Sequence[int], revision: int) -> None:
        for n in pack:
            self._results[n] = WriteResult(self.writes[n], revision)

    def failed(self, pack: Sequence[int], error: Failure) -> None:
        for n in pack:
            self._results[n] = WriteResult(self.writes[n], error=error)

    def retry(self, numbers: Sequence[int]) -> None:
        """Send writes again, up to `TRIES` times: a key may change faster than it can be compared."""
        for n in numbers:
            self._tries[n] = self._tries.get(n, 0) + 1
            if self._tries[n] >= TRIES:
                self.failed([n], WriteConflict(self.writes[n].key))
        self.resend([n for n in numbers if n not in self._results])

    def resend(self, numbers: Sequence[int], *, alone: bool = False) -> None:
        """Queue writes that were not applied, unless the plan has ended meanwhile."""
        if self._ended is not None:
            self.failed(numbers, self._ended)
        else:
            self.packing.again(numbers, alone=alone)

    def end(self, error: Failure) -> None:
        """Fail all writes that were not sent: no further write of this plan can succeed."""
        self._ended = error
        self.failed(self.packing.rest(), error)

    def finished(self) -> Sequence[WriteResult]:
        return [self._results[n] for n in range(len(self.writes))]


def _single(result: int | Sequence[Entry]) -> Entry | None:
    assert not isinstance(result, int)
    return result[0] if result else None


def _unsent(error: Failure) -> Failure:
    """Return the same failure for writes that were never sent: certainly not applied."""
    return StoreAway(error.why) if isinstance(error, StoreAway) else error
