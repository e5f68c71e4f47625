"""`FencedStore`: the store as one term's leader may write it.

Every write is a transaction that compares the create-revision of the leader key with the term (rule 3). A deposed
leader's write fails: nothing of it is written, and `Deposed` says so. Plans of many writes go in packed transactions,
several in flight, one result per write; when the store is out of space nothing of a plan is written, deletes included
(etcd would let them pass while it refuses the puts: an endpoint that moves would lose its old key and get no new one,
C35).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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
    """What became of one write of a plan: the revision it was written at, or why it was not.

    `error` is per object (`TooLarge`, `WriteConflict`, `LeaseGone`) or, where `stop` is set, the end of the whole plan:
    `Deposed`, `NoSpace`, `StoreRefused`, `StoreAway`. A `StoreAway` that is `uncertain` may have been written all
    the same.
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

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        """A transaction of this term. Raises `Deposed` when the term is over, whatever the other comparisons say."""
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

    async def bulk(self, writes: Sequence[FencedWrite]) -> Sequence[WriteResult]:
        """Writes a plan; one result per write, in their order. Writes of different keys may land in any order: what
        must come before something else goes in an earlier call."""
        plan = _Plan(writes, Packing(writes, self._window))
        await self._look_for_space(plan)
        flying: set[asyncio.Task[None]] = set()
        try:
            while True:
                while len(flying) < IN_FLIGHT and (pack := plan.packing.next()):
                    flying.add(asyncio.create_task(self._send(plan, pack)))
                if not flying:
                    return plan.finished()
                landed, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                for task in landed:
                    task.result()
        finally:
            for task in flying:
                task.cancel()

    async def _look_for_space(self, plan: _Plan) -> None:
        """Deletes would pass while the store is out of space, so a plan that has some asks first."""
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
                await self._sort_out(plan, pack)
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

    async def _sort_out(self, plan: _Plan, pack: Sequence[int]) -> None:
        """A comparison failed. Finds whose: the term's, or that of single objects; the others are sent again."""
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
            now = f"term {entry.create_revision} leads now" if entry else "nobody leads now"
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
        """A key that changes faster than it can be compared is given up for this time."""
        for n in numbers:
            self._tries[n] = self._tries.get(n, 0) + 1
            if self._tries[n] >= TRIES:
                self.failed([n], WriteConflict(self.writes[n].key))
        self.resend([n for n in numbers if n not in self._results])

    def resend(self, numbers: Sequence[int], *, alone: bool = False) -> None:
        """These were not written; they go again, unless the plan has ended meanwhile."""
        if self._ended is not None:
            self.failed(numbers, self._ended)
        else:
            self.packing.again(numbers, alone=alone)

    def end(self, error: Failure) -> None:
        """No further write of this plan can succeed: none is sent."""
        self._ended = error
        self.failed(self.packing.rest(), error)

    def finished(self) -> Sequence[WriteResult]:
        return [self._results[n] for n in range(len(self.writes))]


def _single(result: int | Sequence[Entry]) -> Entry | None:
    assert not isinstance(result, int)
    return result[0] if result else None


def _unsent(error: Failure) -> Failure:
    """The same failure for writes that never left: certainly not written."""
    return StoreAway(error.why) if isinstance(error, StoreAway) else error
