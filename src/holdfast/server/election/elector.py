"""Elector: applies the effects of `machine`. It queries the store, turns the answers into events, and publishes the
result on the board.

One task runs the effects one after another, in the order in which they were decided (the state machine relies on that),
one ticks, one watches the leader key. Every answer of the store becomes an event; an unreachable store becomes a failed
attempt. The leader key is put again with every renewal, by the same transaction that proves the term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
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
_UNANSWERED = (StoreAway, StoreError, TimeoutError)
_FAILURES = (machine.CampaignFailed, machine.RenewFailed, machine.LeaderReadFailed)


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

    def leave(self, why: LossReason, rest: Duration | None = None) -> None:
        """Give up leadership and stop campaigning."""
        self._handle(machine.Leave(self._now(), why, rest))

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
            log.info("leadership gained", server=name, term=term, reason=self._why_vacant)
            self._on_change(term, f"{name} leads, term {term}: {self._why_vacant}")
        else:
            log.info("leadership lost", server=name, term=term, reason=change.lost.value)
            self._on_change(term, f"{name} no longer leads, term {term}: {change.lost.value}")

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

    def _failed(self, effect: Effect, error: Exception) -> Event | None:
        log.debug("election attempt failed", effect=type(effect).__name__, error=str(error))
        now = self._now()
        if isinstance(effect, Campaign):
            return machine.CampaignFailed(now)
        if isinstance(effect, Renew):
            gone = isinstance(error, LeaseGone)
            return machine.TermOver(now, effect.term) if gone else machine.RenewFailed(now)
        if isinstance(effect, RecordHistory):
            self._unrecorded = effect.term  # leadership does not depend on it, `holdfast leader` does
            return None
        return machine.Resigned(now) if isinstance(effect, Resign) else machine.LeaderReadFailed(now)

    async def _seen(self) -> SeenLeader:
        return _seen(await self._store.get(self._key))

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
        ours = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        try:
            return (await self._store.txn([ours], [Put(self._key, self._value(), effect.lease)])).succeeded
        except NoSpace:
            # C35: a store that is out of space still renews and compares, and needs a leader all the more.
            return (await self._store.txn([ours], [Get(self._key)])).succeeded

    async def _clear(self, effect: Clear) -> Event:
        same = Compare(self._key, Aspect.MOD_REVISION, effect.mod_revision)
        term = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        # Another server may win now, and it could only guess why there is no leader.
        if await self._delete_key([same, term], effect.term, _DIED_HERE):
            self._why_vacant = f"{self._predecessor} died on this machine, and its key was cleared"
        return machine.LeaderRead(self._now(), await self._seen())

    async def _resign(self, effect: Resign) -> Event:
        ours = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        await self._delete_key([ours], effect.term, effect.why.value)
        await self._store.revoke(effect.lease)
        return machine.Resigned(self._now())

    async def _delete_key(self, compares: Sequence[Compare], term: int, why: str) -> bool:
        """Delete the leader key, and in the same transaction records the reason in the history."""
        record = await self._ended(term, why)
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


def _seen(entry: Entry | None) -> SeenLeader:
    if entry is None:
        return SeenLeader()
    leader = LEADER.decode(entry.key, entry.value)
    return SeenLeader(
        entry.create_revision, entry.mod_revision, entry.lease, None if isinstance(leader, Bad) else leader
    )
