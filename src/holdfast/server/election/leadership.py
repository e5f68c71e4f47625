"""Leadership as the other workers see it: whether they may write, under which term, and until when.

The elector publishes it on the board. `check` reads it there and trusts it until the last confirmed renewal expires
(C1: an elector that died silently cannot prolong anything). `confirm` asks the store before anything long (C2). Between
the two, the fence rejects writes of an outdated term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import structlog

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import Change, Closed, Op, Reason
from holdfast.reconcile.change import K, V
from holdfast.runtime.clock import Clock
from holdfast.runtime.daemon.board import Cell
from holdfast.runtime.daemon.worker import Worker
from holdfast.store.api import Deposed, Entry, Store

log = structlog.get_logger(__name__)

LEADERSHIP_CELL = "leadership"
"""Cell of the board in which the elector shows a `LeadershipCell`."""
_TERM_ENDED = "/term-ended"


def term_ended_cell(worker: str) -> str:
    """Cell of the board in which a worker shows the term that it found to be over."""
    return worker + _TERM_ENDED


def term_ended_cells(worker: Worker) -> dict[str, Cell[TermEnded]]:
    """The cells of all workers, by name."""
    names = [name for name in worker.board.cells() if name.endswith(_TERM_ENDED)]
    return {name: worker.board.cell(name, TermEnded) for name in names}


class LeadershipCell(msgspec.Struct, frozen=True):
    """Published on the board by the elector."""

    phase: str
    term: int = 0
    until: Instant = NEVER
    """Deadline of this server's leadership."""
    work_until: Instant = NEVER
    """Instant at which the lease may have run out: leader work that has not stopped by then ends its process."""
    leader: str = ""
    """Name of the leader, as far as this server knows."""
    since: Instant = NEVER
    why: str = ""
    """Reason for which this server does not lead."""


class TermEnded(msgspec.Struct, frozen=True):
    """Published on the board by a worker that asked the store: this term is over."""

    term: int = 0


class LeaderReason(Reason):
    NOT_LEADER = "another server leads"
    STALE = "its leadership could not be renewed in time"
    DEPOSED = "its term is over"
    PAUSED = "an operator paused this server"


OPENS: Mapping[LeaderReason, str] = {
    LeaderReason.NOT_LEADER: "this server winning an election (holdfast leader shows who leads)",
    LeaderReason.STALE: "the elector reaching the store again (holdfast doctor)",
    LeaderReason.DEPOSED: "this server winning an election (holdfast leader shows who leads)",
    LeaderReason.PAUSED: "holdfast resume server NAME",
}


@dataclass(frozen=True, slots=True)
class Leading:
    term: int
    until: Instant
    work_until: Instant


@dataclass(frozen=True, slots=True)
class NotLeading:
    reason: LeaderReason
    since: Instant
    detail: str = ""


def leadership_verdict(
    shown: LeadershipCell | None, ended: Sequence[TermEnded | None], now: Instant
) -> Leading | NotLeading:
    """Decide from the board: from the elector's cell, and the terms that workers found to be over."""
    if shown is None:
        return NotLeading(LeaderReason.NOT_LEADER, NEVER, "the elector has shown nothing yet")
    if shown.why == LeaderReason.PAUSED.label:
        return NotLeading(LeaderReason.PAUSED, shown.since)
    if shown.phase != "leading" or not shown.term:
        return NotLeading(LeaderReason.NOT_LEADER, shown.since, shown.leader)
    if is_over(shown.term, ended):
        return NotLeading(LeaderReason.DEPOSED, shown.since, f"term {shown.term}")
    if not is_fresh(shown, now):
        return NotLeading(LeaderReason.STALE, shown.until, f"term {shown.term}")
    return Leading(shown.term, shown.until, shown.work_until)


def is_fresh(shown: LeadershipCell, now: Instant) -> bool:  # protection: C1
    """C1: leadership ends with the deadline on the board, even if the elector has died and cannot withdraw it."""
    return now < shown.until


def is_over(term: int, ended: Sequence[TermEnded | None]) -> bool:
    """True if a worker found exactly this term to be over: in a restored store, terms may begin from a lower number."""
    return any(one is not None and one.term == term for one in ended)


class Leadership:
    """One worker's view of its server's leadership."""

    def __init__(
        self, shown: Cell[LeadershipCell], own: Cell[TermEnded], ended: Sequence[Cell[TermEnded]], clock: Clock
    ) -> None:
        self._shown = shown
        self._own = own
        self._ended = ended
        self._clock = clock

    @classmethod
    def of(cls, worker: Worker) -> Leadership:
        """Open the cells of the board that this worker reads and writes."""
        ended = term_ended_cells(worker)
        shown = worker.board.cell(LEADERSHIP_CELL, LeadershipCell)
        return cls(shown, ended[term_ended_cell(worker.name)], list(ended.values()), worker.clock)

    def check(self) -> Leading | NotLeading:
        return leadership_verdict(self._shown.read(), [cell.read() for cell in self._ended], self._clock.now())

    async def confirm(self, store: Store, leader_key: bytes) -> Leading | NotLeading:
        """Ask the store, before anything long. If the store disagrees, the board shows it to all workers (C2)."""
        state = self.check()
        if isinstance(state, NotLeading):
            return state
        entry = await store.get(leader_key)
        if disagrees(entry, state.term):
            self.depose(state.term)
            log.warning("term is over in the store; leader work not begun", term=state.term)
        return self.check()

    def depose(self, term: int) -> None:
        """Mark a term that the store refused: all workers of this server see it, and the elector gives it up."""
        self._own.write(TermEnded(term))

    def left(self, last: Leading) -> Duration:
        """Time for which the lease of that term lasts at least."""
        return last.work_until - self._clock.now()


def disagrees(entry: Entry | None, term: int) -> bool:  # protection: C2
    """C2: whether the leader key in the store is not that of the term that the board shows."""
    return entry is None or entry.create_revision != term


@dataclass
class LeaderGate:
    """Holds every change unless this server leads. The board is read once for all changes of one instant."""

    leadership: Leadership
    _at: Instant | None = None
    _closed: Closed | None = None

    def is_open(self, now: Instant) -> bool:
        return self._verdict(now) is None

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        return self._verdict(now)

    def _verdict(self, now: Instant) -> Closed | None:
        if now != self._at:
            state = self.leadership.check()
            self._at, self._closed = now, None
            if isinstance(state, NotLeading):
                self._closed = Closed("leader", state.reason, state.since, OPENS[state.reason], state.detail)
        return self._closed


Work = Callable[[Leading], Awaitable[None]]
_CHECK_EVERY = 0.1
_STOP_WITHIN = Duration(milliseconds=100)
"""Time that work gets to stop even when the lease is over already, as after a freeze."""


async def while_leading(
    leadership: Leadership, work: Work, stopping: asyncio.Event, *, die: Callable[[str], NoReturn]
) -> None:
    """Run `work` whenever this server leads; cancels it when leadership is lost.

    Work that returns while the term lasts is begun again a moment later. Work that raises `Deposed` ends its term for
    the whole server. Work that does not stop before the lease may have run out ends the process (`die`): the fence
    would refuse its writes, but it is only the last line of defence.
    """
    while not stopping.is_set():
        state = leadership.check()
        if isinstance(state, Leading):
            await _work_one_term(leadership, state, work, stopping, die)
        else:
            await asyncio.sleep(_CHECK_EVERY)


async def _work_one_term(
    leadership: Leadership, leading: Leading, work: Work, stopping: asyncio.Event, die: Callable[[str], NoReturn]
) -> None:
    task = asyncio.ensure_future(work(leading))
    try:
        last = await _while_it_lasts(task, leadership, leading, stopping)
        await _stopped(task, last, leadership, die)
    finally:
        task.cancel()
    if not task.cancelled():
        try:
            task.result()
        except Deposed as refusal:
            log.warning("leader work ends: deposed", term=leading.term, reason=str(refusal))
            leadership.depose(leading.term)


async def _while_it_lasts(
    task: asyncio.Future[None], leadership: Leadership, leading: Leading, stopping: asyncio.Event
) -> Leading:
    """Wait until the work, the term or the process ends. Returns the last known state of the term."""
    last = leading
    while not task.done() and not stopping.is_set():
        await asyncio.sleep(_CHECK_EVERY)
        now = leadership.check()
        if not isinstance(now, Leading) or now.term != leading.term:
            break
        last = now
    return last


async def _stopped(
    task: asyncio.Future[None], last: Leading, leadership: Leadership, die: Callable[[str], NoReturn]
) -> None:
    if task.done():
        return
    task.cancel()
    left = max(_STOP_WITHIN, leadership.left(last))
    done, _ = await asyncio.wait({task}, timeout=left.total_seconds())
    if not done:
        die(f"leader work of term {last.term} did not stop before its lease ran out")
