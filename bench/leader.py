"""Leader without a server, for benchmarks of leader-only workers: its leadership, a waker, and a filled inventory."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine, insert

from bench.fleet import endpoints
from holdfast.inventory.sql.schema import OBJECTS
from holdfast.model.base.time import Duration, seconds
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Cell
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.election.leadership import Leadership, LeadershipCell, TermEnded
from holdfast.store.api import Put

T = TypeVar("T")
BATCH = 500


class LocalCell(Cell[T]):
    """A cell that is not on a shared board."""

    def __init__(self, value: T | None = None) -> None:
        self._value = value

    def write(self, value: T) -> None:
        self._value = value

    def read(self) -> T | None:
        return self._value


class NoWaker:
    """A waker that never receives a notification of the database."""

    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(most.total_seconds())

    async def close(self) -> None:
        return None


def leadership(term: int, clock: SystemClock) -> Leadership:
    """Return the leadership of a server whose lease does not expire."""
    until = clock.now() + seconds(1e6)
    ended = LocalCell[TermEnded]()
    return Leadership(LocalCell(LeadershipCell("leading", term, until, until)), ended, [ended], clock)


def context(clock: SystemClock, state: Path) -> Context:
    return Context(clock, Vitals(clock), DecisionLog(state / "decisions", "bench"), WorkerMetrics())


def fill_inventory(engine: Engine, count: int) -> None:
    """Store endpoints in batches: memory that is freed here would hide growth that is measured later."""
    puts = enumerate(endpoints(count))
    with engine.begin() as connection:
        while batch := [_row(number, put) for number, put in itertools.islice(puts, BATCH)]:
            connection.execute(insert(OBJECTS), batch)


def _row(number: int, put: Put) -> dict[str, object]:
    name = f"e{number}"
    return {"key": put.key, "kind": "endpoint", "name": name, "doc": put.value, "revision": number + 1, "host": "h"}
