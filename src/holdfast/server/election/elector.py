"""Elector: applies the effects of `machine`. It queries the store, turns the answers into events, and publishes the
result on the board.

One task runs the effects one after another, in the order in which they were decided (the state machine relies on that),
one ticks, one watches the leader key. Every answer of the store becomes an event; an unreachable store becomes a failed
attempt. The leader key is put again with every renewal, by the same transaction that proves the term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import structlog

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.handover import HANDOVER, Handover
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.leader_history import LEADERSHIP, LeaderHistory, LeaderPeriod
from holdfast.runtime.clock import Clock
from holdfast.server.election import machine
from holdfast.server.election.leadership import LeaderReason, LeadershipCell
from holdfast.server.election.machine import (
    Campaign,
    Clear,
    Effect,
    Election,
    ElectionPhase,
    Event,
    LeadershipChange,
    LossReason,
    RecordHistory,
    Renew,
    Resign,
    SeenLeader,
)
from holdfast.store.api import (
    Aspect,
    Compare,
    Delete,
    Entry,
    Events,
    Get,
    LeaseGone,
    NoSpace,
    Operation,
    OwnKey,
    Put,
    Snapshot,
    Store,
    StoreAway,
    StoreError,
)

log = structlog.get_logger(__name__)

TICK = 0.25
_LOG_RENEWALS_EVERY = Duration(minutes=5)
_DIED_HERE = "its process died on this machine"
_LEFT_OPEN = "its lease ran out, or its key was deleted"
"""Reason of a term whose end was not recorded: a resignation, or clearing a dead leader's key, records its reason."""
_LOG_FAILURES_EVERY = Duration(seconds=10)
_RESERVED_FOR = Duration(seconds=5)
"""Time for which a vacancy is kept free for the server that the leader stepped down for."""
_UNANSWERED = (StoreAway, StoreError, TimeoutError)
_FAILURES = (machine.CampaignFailed, machine.RenewFailed, machine.LeaderReadFailed, machine.ResignFailed)
_ANSWERS = (machine.LeaderRead, machine.Won, machine.Beaten, machine.Renewed, machine.TermOver, machine.Resigned)
_ATTEMPTS: Mapping[type, str] = {
    Campaign: "campaign",
    Renew: "renew the leadership",
    Resign: "give leadership back",
    Clear: "clear the key of a dead leader",
    RecordHistory: "record the term in the history",
}


class OnAttempt(Protocol):
    def __call__(self, state: Election, *, success: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Renewals:
    """Renewals of a term since the last log line about them: one line per renewal would be too many."""

    term: int = 0
    since: Instant = NEVER
    count: int = 0
    slowest: Duration = Duration(0)

    def plus(self, term: int, sent: Instant, answered: Instant) -> Renewals:
        if term != self.term:
            return Renewals(term, sent, 1, answered - sent)
        return Renewals(term, self.since, self.count + 1, max(self.slowest, answered - sent))


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """Attempts that have failed in a row."""

    error: str = ""
    since: Instant = NEVER
    count: int = 0
    logged: Instant = NEVER

    def plus(self, error: str, now: Instant) -> FailedAttempts:
        return replace(self, error=error, since=self.since or now, count=self.count + 1)


class Elector:
    """`is_dead` says whether a process is certainly dead, `is_over` whether a worker found a term to be over. `show` is
    called with each change of what the board shows, `on_attempt` after each finished attempt (a sign of life for the
    vitals), `on_change` with the term and one sentence when leadership begins or ends here."""

    def __init__(
        self,
        store: Store,
        timings: ServerSettings,
        *,
        clock: Clock,
        me: Leader,
        region: Region,
        is_dead: Callable[[Leader], bool],
        is_over: Callable[[int], bool],
        show: Callable[[LeadershipCell], None],
        on_attempt: OnAttempt,
        on_change: Callable[[int, str], None],
    ) -> None:
        self.state = Election()
        self._store = store
        self._timings = timings
        self._clock = clock
        self._me = me
        self._is_dead = is_dead
        self._is_over = is_over
        self._publish = show
        self._on_attempt = on_attempt
        self._on_change = on_change
        self._key = LEADER.key(region, "leader")
        self._handover_key = HANDOVER.key(region, "handover")
        self._history_key = LEADERSHIP.key(region, "leadership")
        self._effects: asyncio.Queue[Effect] = asyncio.Queue()
        self._read_queued = False
        self._released = asyncio.Event()
        """Set when the elector has stopped and neither holds leadership nor can still win it."""
        self._shown: LeadershipCell | None = None
        self._phase_since = clock.now()
        self._predecessor = ""
        self._why_vacant = "no server led"
        self._since = clock.wall()
        """Start of the last campaign; the leader key carries it as the start of the leadership."""
        self._renewals = Renewals()
        self._failure = FailedAttempts()
        self.confirmed = NEVER
        """Instant of the last answer of the store about leadership; NEVER before the first."""
        self.last_term = 0
        """Term that this server has or had last."""
        self._unrecorded = 0
        """The term that the history lacks because writing it failed; tried again with the next renewal."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Take part in the election until `stopping` is set; then gives leadership back, in bounded time."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (self._run_effects(), self._tick(), self._watch())]
            await stopping.wait()
            self.leave(LossReason.STOPPED)
            try:
                async with asyncio.timeout(self._timings.rpc_timeout.total_seconds()):
                    await self._released.wait()
            except TimeoutError:
                log.warning(
                    "leadership not given back in time; its lease expires", timeout=str(self._timings.rpc_timeout)
                )
            for task in tasks:
                task.cancel()

    def leave(self, why: LossReason, rest: Duration | None = None, successor: str = "") -> None:
        """Give up leadership and stop campaigning; `successor` is the server that others let go first."""
        self._handle(machine.Leave(self._now(), why, rest, successor))

    def rejoin(self, why: LossReason) -> None:
        """Take part again as far as that reason to leave is concerned."""
        self._handle(machine.Rejoin(self._now(), why))

    def read_leader(self) -> None:
        """Read the leader key soon, because it may have changed."""
        self._enqueue(machine.ReadLeader.NOW)

    def _enqueue(self, effect: Effect) -> None:
        """Queue one read at most: more of them would only delay a renewal or a resignation behind them."""
        if effect is machine.ReadLeader.NOW:
            if self._read_queued:
                return
            self._read_queued = True
        self._effects.put_nowait(effect)

    def _now(self) -> Instant:
        return self._clock.now()

    def _handle(self, event: Event) -> None:
        before = self.state
        self.state, effects = machine.step(before, event, self._timings)
        if self.state.phase is not before.phase:
            self._phase_since = self._now()
        seen = self.state.seen
        if seen is not before.seen and seen is not None and seen.term:
            self._predecessor = seen.leader.name if seen.leader else f"the leader of term {seen.term}"
            self._why_vacant = f"{self._predecessor} gave it up, or its lease ran out"
        for effect in effects:
            if isinstance(effect, LeadershipChange):
                self._report(effect)
            else:
                self._enqueue(effect)
        self._show()
        if self.state.phase is ElectionPhase.STOPPED and not self.state.campaigning:
            self._released.set()

    def _show(self) -> None:
        state, seen = self.state, self.state.seen
        leading = state.phase is ElectionPhase.LEADING
        named = seen.leader.name if seen and seen.term and seen.leader else ""
        shown = LeadershipCell(
            phase=state.phase.value,
            term=state.term if leading else 0,
            until=machine.leading_until(state, self._timings),
            work_until=machine.work_until(state, self._timings),
            leader=self._me.name if leading else named,
            since=self._phase_since,
            why=LeaderReason.PAUSED.label if LossReason.PAUSED in state.withheld else "",
        )
        if shown != self._shown:
            self._shown = shown
            self._publish(shown)

    def _report(self, change: LeadershipChange) -> None:
        name, term = self._me.name, change.term
        if change.lost is None:
            self.last_term = term
            log.info("leadership gained", server=name, term=term, reason=self._why_vacant)
            self._on_change(term, f"{name} leads, term {term}: {self._why_vacant}")
        else:
            unproven_s = (self._now() - self.state.proven).total_seconds()
            stale = f" (not renewed for {unproven_s:.1f} s: {self._failure.error})" if self._failure.error else ""
            log.info("leadership lost", server=name, term=term, reason=f"{change.lost.value}{stale}")
            self._on_change(term, f"{name} no longer leads, term {term}: {change.lost.value}{stale}")

    async def _tick(self) -> None:
        while True:
            state, seen = self.state, self.state.seen
            is_over = state.phase is ElectionPhase.LEADING and self._is_over(state.term)
            is_dead = state.phase is ElectionPhase.FOLLOWING and bool(
                seen and seen.leader and self._is_dead(seen.leader)
            )
            self._handle(machine.Tick(self._now(), is_dead, is_over))
            await asyncio.sleep(min(TICK, self._timings.renew_every.total_seconds() / 4))

    async def _watch(self) -> None:
        """The watch only makes the elector read the key at once; correctness does not depend on it."""
        own = OwnKey(self._key, self._timings.renew_every)
        async for change in self._store.watch(self._key, own=own):
            if self.state.phase in (ElectionPhase.FOLLOWING, ElectionPhase.RESTING) and self._is_news(change):
                self.read_leader()

    def _is_news(self, change: Snapshot | Events) -> bool:
        """True if another term may have begun or ended. Renewals of the leader and other keys do not count."""
        if isinstance(change, Snapshot):
            return True
        term = self.state.seen.term if self.state.seen else 0
        mine = [event.entry for event in change.batch if event.key == self._key]
        return any(entry is None or entry.create_revision != term for entry in mine)

    async def _run_effects(self) -> None:
        while True:
            effect = await self._effects.get()
            if effect is machine.ReadLeader.NOW:
                self._read_queued = False
            event = await self._run_effect(effect)
            if isinstance(event, _ANSWERS):
                self._note_answer()
            if event is not None:
                self._handle(event)
            self._on_attempt(self.state, success=not isinstance(event, _FAILURES))

    async def _run_effect(self, effect: Effect) -> Event | None:
        """Make one attempt and return its event. No answer in time is a failed attempt."""
        try:
            async with asyncio.timeout(self._timings.rpc_timeout.total_seconds()):
                return await self._attempt(effect)
        except _UNANSWERED as error:
            return self._failed(effect, error)

    async def _attempt(self, effect: Effect) -> Event | None:
        if isinstance(effect, Campaign):
            return await self._campaign()
        if isinstance(effect, Renew):
            return await self._renew(effect)
        if isinstance(effect, Clear):
            return await self._clear(effect)
        if isinstance(effect, Resign):
            return await self._resign(effect)
        if isinstance(effect, RecordHistory):
            await self._record(effect)
            return None
        return machine.LeaderRead(self._now(), await self._seen())

    def _note_failure(self, effect: Effect, error: Exception) -> None:
        """Log a failed attempt with its cause, at most every few seconds: the first of a row always."""
        now = self._now()
        self._failure = self._failure.plus(str(error) or "no answer in time", now)
        if not self._failure.logged or now - self._failure.logged >= _LOG_FAILURES_EVERY:
            self._failure = replace(self._failure, logged=now)
            state, leads = self.state, self.state.phase is ElectionPhase.LEADING
            left = (machine.leading_until(state, self._timings) - now).total_seconds() if leads else None
            log.info(
                "election attempt failed; retrying",
                server=self._me.name,
                attempt=_ATTEMPTS.get(type(effect), "read the leader key"),
                error=self._failure.error,
                count=self._failure.count,
                **({} if left is None else {"term": state.term, "term_stale_in_s": round(left, 1)}),
            )

    def _note_answer(self) -> None:
        self.confirmed = self._now()
        if self._failure.count:
            lasted = round((self._now() - self._failure.since).total_seconds(), 1)
            log.info("the store answers again", server=self._me.name, failed=self._failure.count, for_s=lasted)
            self._failure = FailedAttempts()

    def _failed(self, effect: Effect, error: Exception) -> Event | None:
        now = self._now()
        if not isinstance(error, LeaseGone):
            self._note_failure(effect, error)
        if isinstance(effect, Campaign):
            return machine.CampaignFailed(now)
        if isinstance(effect, Renew):
            gone = isinstance(error, LeaseGone)
            return machine.TermOver(now, effect.term) if gone else machine.RenewFailed(now)
        if isinstance(effect, RecordHistory):
            self._unrecorded = effect.term  # leadership does not depend on it, `holdfast leader` does
            return None
        return machine.ResignFailed(now) if isinstance(effect, Resign) else machine.LeaderReadFailed(now)

    async def _seen(self) -> SeenLeader:
        """Read the leader key and, in the same transaction, for which server the vacancy is reserved."""
        found = await self._store.txn([], [Get(self._key), Get(self._handover_key)])
        leader, reserved = (_single(one) for one in found.results)
        return replace(_seen(leader), reserved_for=self._reserved_for(reserved))

    def _reserved_for(self, entry: Entry | None) -> str:
        handover = HANDOVER.decode(entry.key, entry.value) if entry is not None else None
        return handover.to if isinstance(handover, Handover) and handover.to != self._me.name else ""

    async def _campaign(self) -> Event:
        sent, self._since = self._now(), self._clock.wall()
        lease = await self._store.grant(self._timings.ttl)
        self._handle(machine.Leased(self._now(), sent, lease))
        absent = Compare(self._key, Aspect.CREATE_REVISION, 0)
        take: Sequence[Operation] = [Put(self._key, self._value(), lease), Get(self._history_key)]
        result = await self._store.txn([absent], take, [Get(self._key)])
        if result.succeeded:
            self._read_vacancy_reason(result.results[-1])
            return machine.Won(self._now(), result.revision)
        await self._store.revoke(lease)
        (entries,) = result.results
        assert not isinstance(entries, int)
        return machine.Beaten(self._now(), _seen(entries[0] if entries else None))

    def _read_vacancy_reason(self, stored: int | Sequence[Entry]) -> None:
        """Read the reason from the history: the server that ended the last term recorded why."""
        assert not isinstance(stored, int)
        history = self._decoded(stored[0] if stored else None)
        if history.periods:
            last = history.periods[-1]
            self._why_vacant = f"{last.name} led before, and that ended because {last.why or _LEFT_OPEN}"

    def _value(self) -> bytes:
        return LEADER.encode(msgspec.structs.replace(self._me, since=self._since))

    async def _renew(self, effect: Renew) -> Event:
        sent = self._now()
        if self.state.phase is not ElectionPhase.LEADING:
            return machine.RenewFailed(sent)  # leadership was given up while this was queued
        await self._store.renew(effect.lease)
        if not await self._proven(effect):
            return machine.TermOver(self._now(), effect.term)
        self._count_renewal(effect.term, sent)
        if self._unrecorded == effect.term:
            self._unrecorded = 0
            self._enqueue(RecordHistory(effect.term))
        return machine.Renewed(self._now(), sent, effect.term)

    def _count_renewal(self, term: int, sent: Instant) -> None:
        now = self._now()
        self._renewals = self._renewals.plus(term, sent, now)
        if now - self._renewals.since >= _LOG_RENEWALS_EVERY:
            slowest_ms = round(self._renewals.slowest.total_seconds() * 1_000)
            log.info(
                "leadership renewed", server=self._me.name, term=term, count=self._renewals.count, slowest_ms=slowest_ms
            )
            self._renewals = Renewals()

    async def _proven(self, effect: Renew) -> bool:  # protection: C11
        """C11: an old etcd acknowledges the renewal of a revoked lease; only this transaction proves the term."""
        ours = self._is_ours(effect)
        try:
            return (await self._store.txn(ours, [Put(self._key, self._value(), effect.lease)])).succeeded
        except NoSpace:
            # C35: a store that is out of space still renews and compares, and needs a leader all the more.
            return (await self._store.txn(ours, [Get(self._key)])).succeeded

    def _is_ours(self, effect: Renew | Resign) -> Sequence[Compare]:  # protection: C42
        """C42: compares that the leader key is that of this term. In a restored store the term of another server may
        have the same number, but never the same lease."""
        term = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        return [term, Compare(self._key, Aspect.LEASE, effect.lease)]

    async def _clear(self, effect: Clear) -> Event:
        same = Compare(self._key, Aspect.MOD_REVISION, effect.mod_revision)
        term = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        # Another server may win now, and it could only guess why there is no leader.
        if await self._delete_key([same, term], effect.term, _DIED_HERE):
            self._why_vacant = f"{self._predecessor} died on this machine, and its key was cleared"
        return machine.LeaderRead(self._now(), await self._seen())

    async def _resign(self, effect: Resign) -> Event:
        ours, reservation = self._is_ours(effect), await self._reservation(effect.successor)
        await self._delete_key(ours, effect.term, effect.why.value, reservation)
        await self._store.revoke(effect.lease)
        return machine.Resigned(self._now())

    async def _reservation(self, successor: str) -> list[Put]:
        """The key that lets other servers hold back; it expires by itself."""
        if not successor:
            return []
        try:
            lease = await self._store.grant(_RESERVED_FOR)
        except NoSpace:
            return []  # C35: a store that is out of space grants no lease; any server may take over
        return [Put(self._handover_key, HANDOVER.encode(Handover(successor, self._me.name)), lease)]

    async def _delete_key(
        self, compares: Sequence[Compare], term: int, why: str, reservation: Sequence[Put] = ()
    ) -> bool:
        """Delete the leader key, and in the same transaction records the reason in the history."""
        record = [*await self._ended(term, why), *reservation]
        try:
            return (await self._store.txn(compares, [Delete(self._key), *record])).succeeded
        except NoSpace:
            return (await self._store.txn(compares, [Delete(self._key)])).succeeded

    async def _ended(self, term: int, why: str) -> list[Put]:
        """The history with that term ended; nothing when the history's last term is another one."""
        history = await self._history()
        if not history.periods or history.periods[-1].term != term:
            return []
        ended = history.end(self._clock.wall(), why)
        return [Put(self._history_key, LEADERSHIP.encode(ended))]

    async def _history(self) -> LeaderHistory:
        return self._decoded(await self._store.get(self._history_key))

    def _decoded(self, entry: Entry | None) -> LeaderHistory:
        history = LEADERSHIP.decode(self._history_key, entry.value) if entry else LeaderHistory()
        return LeaderHistory() if isinstance(history, Bad) else history

    async def _record(self, effect: RecordHistory) -> None:
        me, history = self._me, await self._history()
        if history.periods and history.periods[-1].term == effect.term:
            return  # it was written, and only the answer was lost
        history = history.begin(LeaderPeriod(me.name, me.host, effect.term, self._since), _LEFT_OPEN)
        ours = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        await self._store.txn([ours], [Put(self._history_key, LEADERSHIP.encode(history))])


def _single(result: int | Sequence[Entry]) -> Entry | None:
    assert not isinstance(result, int)
    return result[0] if result else None


def _seen(entry: Entry | None) -> SeenLeader:
    if entry is None:
        return SeenLeader()
    leader = LEADER.decode(entry.key, entry.value)
    return SeenLeader(
        entry.create_revision, entry.mod_revision, entry.lease, None if isinstance(leader, Bad) else leader
    )
