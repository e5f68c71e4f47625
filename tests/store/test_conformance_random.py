"""Random sequences of operations are answered alike by FakeStore, the in-memory gateway and a real etcd, step by step.

Revisions count from where each store stood at the start of the sequence, leases by the order of their grants. A
sequence that differs is shrunk to the shortest one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from holdfast.model.base.time import seconds
from holdfast.store.api import Aspect, Compare, Delete, Entry, Get, Operation, Put, Store, StoreError
from holdfast.testing.real.etcd import EtcdCluster
from tests.store.conformance import EtcdGround, FakeGround, GatewayGround, Ground, pages, watching

T = TypeVar("T")
Answer = object

KEYS = [b"a", b"a\0", b"b", b"b/1", b"b/2", b"\xff", b"\xff\xff"]
keys = st.sampled_from(KEYS)
values = st.sampled_from([b"", b"1", b"2", b"\xff" * 40])
ends = st.one_of(st.none(), st.sampled_from([b"b", b"b/2", b"\xff", b"\0"]))
leases = st.integers(0, 3)
"""0 is none, 1 to 3 the first to third that were granted, whether they live or not; what was never granted is gone."""
relations = st.sampled_from(["EQUAL", "GREATER", "LESS", "NOT_EQUAL"])
revisions = st.integers(0, 12)


@dataclass(frozen=True)
class Step:
    """One call, with revisions and leases as the sequence counts them."""

    method: str
    arguments: tuple[object, ...] = ()


def step(method: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.builds(lambda *found: Step(method, found), *arguments)


numbers = st.sampled_from([Aspect.CREATE_REVISION, Aspect.MOD_REVISION, Aspect.VERSION, Aspect.LEASE])
compares = st.one_of(
    st.builds(Compare, keys, numbers, st.integers(0, 6), relations),
    st.builds(Compare, keys, st.just(Aspect.VALUE), values, relations),
)
spans = st.tuples(keys, ends).filter(lambda span: span[1] is None or span[1] == b"\0" or span[0] < span[1])
operations = st.one_of(
    st.builds(Put, keys, values, leases),
    st.builds(lambda span: Delete(*span), spans),
    st.builds(lambda span: Get(*span), spans),
)
branches = st.lists(operations, max_size=4)
steps = st.one_of(
    step("put", keys, values, leases),
    step("get", keys, revisions),
    step("list", st.sampled_from([b"", b"a", b"b", b"b/", b"\xff"]), revisions),
    step("delete", spans),
    step("txn", st.lists(compares, max_size=2), branches, branches),
    step("grant"),
    step("renew", leases),
    step("revoke", leases),
    step("compact", st.integers(1, 12)),
)


@dataclass
class Run:
    """One sequence on one store: translates its revisions and leases there and back."""

    store: Store
    start: int
    granted: list[int] = field(default_factory=list)

    async def take(self, taken: Step) -> Answer:
        call: Callable[..., object] = getattr(self, f"_{taken.method}")
        try:
            return await call(*taken.arguments)  # type: ignore[misc]  # each of the methods below is a coroutine
        except StoreError as refused:
            return type(refused).__name__

    def _lease(self, number: int) -> int:
        if number == 0:
            return 0
        return self.granted[number - 1] if number <= len(self.granted) else 0x7777_7777

    def _there(self, revision: int) -> int:
        return revision + self.start if revision else 0

    def _back(self, revision: int) -> int:
        return revision - self.start

    def _plain(self, entry: Entry | None) -> object:
        if entry is None:
            return None
        lease = self.granted.index(entry.lease) + 1 if entry.lease else 0
        created, changed = self._back(entry.create_revision), self._back(entry.mod_revision)
        return entry.key, entry.value, created, changed, entry.version, lease

    def _operation(self, op: Operation) -> Operation:
        return Put(op.key, op.value, self._lease(op.lease)) if isinstance(op, Put) else op

    def _compare(self, compare: Compare) -> Compare:
        wanted = compare.wanted
        if isinstance(wanted, int) and compare.aspect in (Aspect.CREATE_REVISION, Aspect.MOD_REVISION):
            wanted = self._there(wanted)
        if isinstance(wanted, int) and compare.aspect is Aspect.LEASE:
            # The size of a lease's number means nothing: only whether it is the one.
            return Compare(compare.key, compare.aspect, self._lease(wanted), "EQUAL")
        return Compare(compare.key, compare.aspect, wanted, compare.relation)

    async def _put(self, key: bytes, value: bytes, lease: int) -> Answer:
        return self._back(await self.store.put(key, value, lease=self._lease(lease)))

    async def _get(self, key: bytes, revision: int) -> Answer:
        return self._plain(await self.store.get(key, revision=self._there(revision)))

    async def _list(self, prefix: bytes, revision: int) -> Answer:
        found = await pages(self.store, prefix, revision=self._there(revision))
        return self._back(found[0].revision), [self._plain(e) for page in found for e in page.entries]

    async def _delete(self, span: tuple[bytes, bytes | None]) -> Answer:
        return await self.store.delete(span[0], end=span[1])

    async def _txn(self, compared: Sequence[Compare], then: Sequence[Operation], other: Sequence[Operation]) -> Answer:
        done = await self.store.txn(
            [self._compare(c) for c in compared],
            [self._operation(op) for op in then],
            [self._operation(op) for op in other],
        )
        branch = then if done.succeeded else other
        results = [self._result(op, result) for op, result in zip(branch, done.results, strict=True)]
        return done.succeeded, self._back(done.revision), results

    def _result(self, op: Operation, result: int | Sequence[Entry]) -> Answer:
        if isinstance(result, int):
            return self._back(result) if isinstance(op, Put) else result
        return [self._plain(e) for e in result]

    async def _grant(self) -> Answer:
        self.granted.append(await self.store.grant(seconds(600)))
        return len(self.granted)

    async def _renew(self, lease: int) -> Answer:
        return await self.store.renew(self._lease(lease) or 0x7777_7777)

    async def _revoke(self, lease: int) -> None:
        await self.store.revoke(self._lease(lease) or 0x7777_7777)

    async def _compact(self, revision: int) -> None:
        await self.store.compact(self._there(revision))


def play(ground: Ground, sequence: Sequence[Step]) -> tuple[list[Answer], dict[bytes, bytes]]:
    """Return the answer of each step, and what the store and a watch of all of it held at the end."""

    async def scenario(store: Store) -> tuple[list[Answer], dict[bytes, bytes]]:
        run = Run(store, await store.put(b"start", b""))
        async with watching(store, b"") as view:
            answers = [await run.take(taken) for taken in sequence]
            held = await view.until(await store.put(b"end", b""))
        now = {e.key: e.value for page in await pages(store, b"") for e in page.entries}
        assert held == now, "the watch ends with what the store holds"
        return answers, now

    return ground.run(scenario)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequence=st.lists(steps, min_size=1, max_size=25))
def test_any_sequence_of_operations_answers_alike(cleared_etcd: EtcdCluster, sequence: list[Step]) -> None:
    real = play(EtcdGround(cleared_etcd), sequence)
    assert play(FakeGround(), sequence) == real
    assert play(GatewayGround(), sequence) == real
