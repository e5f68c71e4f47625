"""Leadership as the other workers see it: may I write, under which term, and until when.

The elector shows it on the board; `check` reads it there and believes it no longer than the last proven renewal allows
(C1: an elector that died silently cannot prolong anything). `confirm` asks the store itself before anything long (C2).
Between the two, the fence in every write makes a late belief harmless.
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
from holdfast.store.api import Deposed, Entry, Store

log = structlog.get_logger(__name__)


class LeadershipCell(msgspec.Struct, frozen=True):
    """What the elector shows on the board."""

    phase: str
    term: int = 0
    until: Instant = NEVER
    """Until when leadership may be believed."""
    work_until: Instant = NEVER
    """When the lease may have run out: leader work that has not stopped by then ends its process."""
    leader: str = ""
    """Who leads, as far as this server knows."""
    since: Instant = NEVER
    why: str = ""
    """Why this server does not lead."""


class TermEnded(msgspec.Struct, frozen=True):
    """What a worker that asked the store found: this term is over."""

    term: int = 0


class LeaderReason(Reason):
    NOT_LEADER = "another server leads"
    STALE = "its leadership could not be renewed in time"
    DEPOSED = "its term is over"
    PAUSED = "an operator paused this server"


OPENS: Mapping[LeaderReason, str] = {
    LeaderReason.NOT_LEADER: "this server winning an election (holdfast leader tells who leads)",
    LeaderReason.STALE: "the elector reaching the store again (holdfast doctor)",
    LeaderReason.DEPOSED: "this server winning an election (holdfast leader tells who leads)",
    LeaderReason.PAUSED: "holdfast resume server",
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


def judge(shown: LeadershipCell | None, found: Sequence[TermEnded | None], now: Instant) -> Leading | NotLeading:
    """Reads the board's word on leadership."""
    if shown is None:
        return NotLeading(LeaderReason.NOT_LEADER, NEVER, "the elector has not said anything yet")
    if shown.why == LeaderReason.PAUSED.label:
        return NotLeading(LeaderReason.PAUSED, shown.since)
    if shown.phase != "leading" or not shown.term:
        return NotLeading(LeaderReason.NOT_LEADER, shown.since, shown.leader)
    if is_over(shown.term, found):
        return NotLeading(LeaderReason.DEPOSED, shown.since, f"term {shown.term}")
    if not is_fresh(shown, now):
        return NotLeading(LeaderReason.STALE, shown.until, f"term {shown.term}")
    return Leading(shown.term, shown.until, shown.work_until)


def is_fresh(shown: LeadershipCell, now: Instant) -> bool:
    """C1: belief ends with the deadline on the board, whether or not the elector lives to say so."""
    return now < shown.until


def is_over(term: int, found: Sequence[TermEnded | None]) -> bool:
    """Whether a worker found exactly this term to be over. A restored store may count terms from below again."""
    return any(one is not None and one.term == term for one in found)


class Leadership:
    """One worker's view of its server's leadership."""

    def __init__(
        self, shown: Cell[LeadershipCell], own: Cell[TermEnded], all_found: Sequence[Cell[TermEnded]], clock: Clock
    ) -> None:
        self._shown = shown
        self._own = own
        self._all = all_found
        self._clock = clock

    def check(self) -> Leading | NotLeading:
        return judge(self._shown.read(), [cell.read() for cell in self._all], self._clock.now())

    async def confirm(self, store: Store, leader_key: bytes) -> Leading | NotLeading:
        """Asks the store, before anything long. When it disagrees, that goes on the board for all to see (C2)."""
        said = self.check()
        if isinstance(said, NotLeading):
            return said
        entry = await store.get(leader_key)
        if disagrees(entry, said.term):
            self.depose(said.term)
            log.warning(f"the store says that term {said.term} is over; the work is not begun")
        return self.check()

    def depose(self, term: int) -> None:
        """The store refused this term. All workers of this server see it, and the elector gives the term up."""
        self._own.write(TermEnded(term))

    def left(self, last: Leading) -> Duration:
        """For how long the lease of that term lasts at least."""
        return last.work_until - self._clock.now()


def disagrees(entry: Entry | None, term: int) -> bool:
    """C2: whether the leader key, as the store has it, is not that of the term we believe in."""
    return entry is None or entry.create_revision != term


@dataclass
class LeaderGate:
    """Holds every change unless this server leads. The board is looked at once for all changes of one moment."""

    leadership: Leadership
    _at: Instant | None = None
    _closed: Closed | None = None

    def is_open(self, now: Instant) -> bool:
        return self._look(now) is None

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        return self._look(now)

    def _look(self, now: Instant) -> Closed | None:
        if now != self._at:
            said = self.leadership.check()
            self._at, self._closed = now, None
            if isinstance(said, NotLeading):
                self._closed = Closed("leader", said.reason, said.since, OPENS[said.reason], said.detail)
        return self._closed


Work = Callable[[Leading], Awaitable[None]]
_LOOK_EVERY = 0.1
_TO_STOP = Duration(milliseconds=100)
"""What work gets to stop even when the lease is over already, as after a freeze."""


async def while_leading(
    leadership: Leadership, work: Work, stopping: asyncio.Event, *, die: Callable[[str], NoReturn]
) -> None:
    """Runs `work` whenever this server leads; cancels it when leadership is lost.

    Work that returns while the term lasts is begun again a moment later. Work that raises `Deposed` ends its term for
    the whole server. Work that does not stop before the lease may have run out ends the process (`die`): the fence
    would refuse its writes, but nobody should have to rely on it.
    """
    while not stopping.is_set():
        said = leadership.check()
        if isinstance(said, Leading):
            await _work_one_term(leadership, said, work, stopping, die)
        else:
            await asyncio.sleep(_LOOK_EVERY)


async def _work_one_term(
    leadership: Leadership, said: Leading, work: Work, stopping: asyncio.Event, die: Callable[[str], NoReturn]
) -> None:
    task = asyncio.ensure_future(work(said))
    try:
        last = await _while_it_lasts(task, leadership, said, stopping)
        await _stopped(task, last, leadership, die)
    finally:
        task.cancel()
    if not task.cancelled():
        try:
            task.result()
        except Deposed as refusal:
            log.warning(f"leader work ends: {refusal}")
            leadership.depose(said.term)


async def _while_it_lasts(
    task: asyncio.Future[None], leadership: Leadership, said: Leading, stopping: asyncio.Event
) -> Leading:
    """Waits until the work, the term or everything ends; what was last known of the term."""
    last = said
    while not task.done() and not stopping.is_set():
        await asyncio.sleep(_LOOK_EVERY)
        now = leadership.check()
        if not isinstance(now, Leading) or now.term != said.term:
            break
        last = now
    return last


async def _stopped(
    task: asyncio.Future[None], last: Leading, leadership: Leadership, die: Callable[[str], NoReturn]
) -> None:
    if task.done():
        return
    task.cancel()
    left = max(_TO_STOP, leadership.left(last))
    done, _ = await asyncio.wait({task}, timeout=left.total_seconds())
    if not done:
        die(f"leader work of term {last.term} did not stop before its lease ran out")
