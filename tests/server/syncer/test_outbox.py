"""The outbox is read on by position, and swept for rows that committed late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert

from holdfast.inventory.api import Fence, OutboxRow
from holdfast.inventory.sql.engine import writing
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import OUTBOX
from holdfast.model.base.time import seconds
from holdfast.model.control.mark import Mark
from holdfast.server.syncer import outbox
from holdfast.server.syncer.outbox import FEW, SWEEP_EVERY, Outbox
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fault import fault
from holdfast.testing.real.postgres import Postgres
from tests.server.harness import HandClock, at_once

FENCE = Fence("no-region", 1, 7)
PAGE = 50


@pytest.fixture
def postgres_engine(postgres: Postgres) -> Iterator[Engine]:
    with fresh_engine(postgres.create_database()) as made:
        yield made


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with fresh_engine(f"sqlite:///{tmp_path}/inventory.db") as made:
        yield made


class CountingInventory(SqlInventory):
    """Counts the rows of the outbox that are read, and the largest transaction that settles some."""

    read, most_settled = 0, 0

    def outbox(self, most: int, after: int = 0) -> Sequence[OutboxRow]:
        rows = super().outbox(most, after)
        self.read += len(rows)
        return rows

    def settle(self, fence: Fence, ids: Sequence[int], mark: Mark | None = None) -> None:
        self.most_settled = max(self.most_settled, len(ids))
        super().settle(fence, ids, mark)


class Site:
    """An outbox on a database, and what the syncer has fetched from it so far."""

    def __init__(self, engine: Engine, has: Callable[[bytes], bool] = lambda _key: True) -> None:
        self.inventory = CountingInventory(engine)
        self.inventory.raise_fence(FENCE)
        self.clock = HandClock()
        self.is_pass_next = False
        self.outbox = Outbox(
            *(self.inventory, at_once, FENCE, has, self.clock.now), is_pass_next=lambda: self.is_pass_next
        )

    def add(self, keys: Sequence[bytes], first: int | None = None) -> None:
        rows = [{"key": key} | ({} if first is None else {"id": first + n}) for n, key in enumerate(keys)]
        with writing(self.inventory.engine) as connection:
            connection.execute(insert(OUTBOX), rows)

    def fetch(self) -> set[bytes]:
        return set(asyncio.run(self.outbox.fetch()))

    def settle(self, is_open: Callable[[bytes], bool] = lambda _key: False) -> None:
        asyncio.run(self.outbox.settle(is_open))


def keys(count: int, word: str = "k") -> list[bytes]:
    return [f"{word}{number:05}".encode() for number in range(count)]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "PAGE", PAGE)
    monkeypatch.setattr(outbox, "FEW", 10)


@fault(
    "C57",
    without="holdfast.server.syncer.outbox:Outbox.is_sweep_due",
    returns=True,
    sees=(AssertionError, r"site.inventory.read < 2 \* len\(wanted\)"),
)
def test_C57_waiting_rows_are_not_read_again_for_each_page(engine: Engine) -> None:
    site, wanted = Site(engine), keys(40 * PAGE)
    site.add(wanted)
    found = [site.fetch() for _ in range(80)]  # a pass of 80 pages, with everything waiting
    assert set().union(*found) == set(wanted)
    assert site.inventory.read < 2 * len(wanted), "every row is read about once"


@fault(
    "C37",
    without="holdfast.server.syncer.outbox:Outbox.is_sweep_due",
    returns=False,
    sees=(AssertionError, r'site.fetch\(\) == \{b"early"\}'),
)
def test_C37_a_row_that_commits_late_is_seen(postgres_engine: Engine) -> None:
    site = Site(postgres_engine)
    with writing(postgres_engine) as slow:
        slow.execute(insert(OUTBOX).values(key=b"early"))
        site.add([b"late"])
        assert site.fetch() == {b"late"}
    assert site.fetch() == {b"early"}
    site.settle()
    assert site.inventory.waiting() == 0


@fault(
    "C37",
    without="holdfast.server.syncer.outbox:Outbox.is_sweep_due",
    returns=False,
    sees=(AssertionError, r'site.fetch\(\) == \{b"early"\}'),
)
def test_C37_a_row_that_commits_late_is_seen_although_many_wait(engine: Engine) -> None:
    site = Site(engine)
    site.add(keys(3 * PAGE), first=1_000)
    while site.fetch():
        pass
    site.add([b"early"], first=7)
    assert site.fetch() == set(), "not read again for each page"
    site.clock.advance(SWEEP_EVERY)
    assert site.fetch() == {b"early"}


def test_everything_is_fetched_at_once_before_a_full_pass(engine: Engine) -> None:
    site, wanted = Site(engine), keys(5 * PAGE + 3)
    site.add(wanted)
    site.is_pass_next = True
    assert site.fetch() == set(wanted)


def test_rows_are_settled_a_page_per_transaction(engine: Engine) -> None:
    site, wanted = Site(engine), keys(3 * PAGE + 1)
    site.add(wanted)
    site.is_pass_next = True
    site.fetch()
    site.settle(lambda key: key == wanted[0])
    assert site.inventory.most_settled == PAGE
    assert [row.key for row in site.inventory.outbox(10)] == wanted[:1]
    assert site.outbox.has_announced(wanted[0])
    assert not site.outbox.has_announced(wanted[1])


def test_rows_of_another_region_are_left_alone_and_not_read_each_time(engine: Engine) -> None:
    site = Site(engine, has=lambda key: key.startswith(b"ours"))
    site.add(keys(4 * PAGE, "theirs"))
    site.add([b"ours"])
    found = [site.fetch() for _ in range(20)]
    site.settle()
    assert set().union(*found) == {b"ours"}
    assert site.inventory.read < 8 * PAGE
    assert site.inventory.waiting() == 4 * PAGE


def test_sweeps_of_many_rows_take_a_small_share_of_the_time(engine: Engine) -> None:
    site = Site(engine)
    site.add(keys(2 * PAGE))
    slow, counting = site.inventory.outbox, []

    def outbox_that_takes_10_s(most: int, after: int = 0) -> Sequence[OutboxRow]:
        site.clock.advance(seconds(10))
        counting.append(after)
        return slow(most, after)

    while site.fetch():
        pass
    site.inventory.outbox = outbox_that_takes_10_s  # type: ignore[method-assign]
    site.clock.advance(SWEEP_EVERY)
    for _ in range(30):
        site.fetch()
    assert counting.count(0) == 1


def test_few_waiting_rows_are_swept_with_every_fetch(engine: Engine) -> None:
    assert FEW >= 100
    site = Site(engine)
    site.add([b"a"], first=100)
    site.fetch()
    site.add([b"b"], first=50)
    assert site.fetch() == {b"b"}
