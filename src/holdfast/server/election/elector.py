"""The elector: does what `election` decides. Thin: asks the store, feeds the answers back, shows the result.

One task does things one after another, in the order in which they were decided (the election relies on that), one
ticks, one watches the leader key. Whatever the store answers becomes an event; a store that is away becomes a failed
attempt. The leader key is put again with every renewal, by the same transaction that proves the term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from holdfast.config.sections.server import ServerSettings as Timings
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.leader_history import LEADERSHIP, LeaderPeriod
from holdfast.model.control.leader_history import LeaderHistory as History
from holdfast.runtime.clock import Clock
from holdfast.server.election import machine as election
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
_TELL_RENEWALS = Duration(minutes=5)
_DIED_HERE = "its process died on this machine"
_LEFT_OPEN = "its lease ran out, or its key was deleted"
"""Of a reign that nobody ended: who resigns, or clears a dead one's key, says so in the same transaction."""
_GAVE_UP = (StoreAway, StoreError, TimeoutError)
_FAILURES = (election.CampaignFailed, election.RenewFailed, election.LeaderReadFailed)


class Attempted(Protocol):
    def __call__(self, state: Election, *, success: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the elector needs to know of the world besides the store."""

    clock: Clock
    me: Leader
    region: Region
    dead: Callable[[Leader], bool]
    """Whether that process certainly is no more; False unless it can be known from here."""
    show: Callable[[LeadershipCell], None]
    attempted: Attempted
    """Called after each finished attempt: a sign of life for the pulse."""
    doubted: Callable[[int], bool]
    """Whether a worker found this term to be over."""
    told: Callable[[int, str], None]
    """Called with each change of leadership: its term, and one sentence."""


@dataclass(frozen=True, slots=True)
class Renewals:
    """The renewals of a term since they were last told of: each would be too many lines, none would be too few."""

    term: int = 0
    since: Instant = NEVER
    count: int = 0
    slowest: Duration = Duration(0)

    def plus(self, term: int, sent: Instant, answered: Instant) -> Renewals:
        if term != self.term:
            return Renewals(term, sent, 1, answered - sent)
        return Renewals(term, self.since, self.count + 1, max(self.slowest, answered - sent))

    def __str__(self) -> str:
        return f"{self.count} renewals, the slowest in {self.slowest.total_seconds() * 1_000:.0f} ms"


class Elector:
    def __init__(self, store: Store, timings: Timings, around: Surroundings) -> None:
        self.state = Election()
        self._store = store
        self._timings = timings
        self._around = around
        self._key = LEADER.key(around.region, "leader")
        self._history_key = LEADERSHIP.key(around.region, "leadership")
        self._to_do: asyncio.Queue[Effect] = asyncio.Queue()
        self._look_waits = False
        self._nothing_left = asyncio.Event()
        """Stopped, and there is nothing that we hold or could still win."""
        self._shown: LeadershipCell | None = None
        self._phase_since = around.clock.now()
        self._predecessor = ""
        self._why_vacant = "nobody led"
        self._since = around.clock.wall()
        """When the last campaign began: what the key says of how long its holder leads."""
        self._renewals = Renewals()
        self._unrecorded = 0
        """The term that the history lacks, because writing it down failed: tried again with the next renewal."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Takes part in the election until told to stop; then gives leadership back, in bounded time."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (self._do_things(), self._tick(), self._watch())]
            await stopping.wait()
            self.leave(LossReason.STOPPED)
            try:
                async with asyncio.timeout(self._timings.rpc_timeout.total_seconds()):
                    await self._nothing_left.wait()
            except TimeoutError:
                log.warning("leadership could not be given back in time; its lease runs out")
            for task in tasks:
                task.cancel()

    def leave(self, why: LossReason, rest: Duration | None = None) -> None:
        """Gives up leadership and the wish for it."""
        self._feed(election.Leave(self._now(), why, rest))

    def go_on(self, why: LossReason) -> None:
        """That reason not to campaign is gone."""
        self._feed(election.GoOn(self._now(), why))

    def look(self) -> None:
        """Something may have changed: look at the key."""
        self._plan(election.ReadLeader.NOW)

    def _plan(self, effect: Effect) -> None:
        """One look that waits is as good as ten: they would keep a renewal or a resignation waiting behind them."""
        if effect is election.ReadLeader.NOW:
            if self._look_waits:
                return
            self._look_waits = True
        self._to_do.put_nowait(effect)

    def _now(self) -> Instant:
        return self._around.clock.now()

    def _feed(self, event: Event) -> None:
        before = self.state
        self.state, effects = election.step(before, event, self._timings)
        if self.state.phase is not before.phase:
            self._phase_since = self._now()
        seen = self.state.seen
        if seen is not before.seen and seen is not None and seen.term:
            self._predecessor = seen.leader.name if seen.leader else f"the leader of term {seen.term}"
            self._why_vacant = f"{self._predecessor} gave it up, or its lease ran out"
        for effect in effects:
            if isinstance(effect, LeadershipChange):
                self._tell(effect)
            else:
                self._plan(effect)
        self._show()
        if self.state.phase is ElectionPhase.STOPPED and not self.state.campaigning:
            self._nothing_left.set()

    def _show(self) -> None:
        state, seen = self.state, self.state.seen
        leading = state.phase is ElectionPhase.LEADING
        named = seen.leader.name if seen and seen.term and seen.leader else ""
        shown = LeadershipCell(
            phase=state.phase.value,
            term=state.term if leading else 0,
            until=election.leading_until(state, self._timings),
            work_until=election.work_until(state, self._timings),
            leader=self._around.me.name if leading else named,
            since=self._phase_since,
            why=LeaderReason.PAUSED.label if LossReason.PAUSED in state.withheld else "",
        )
        if shown != self._shown:
            self._shown = shown
            self._around.show(shown)

    def _tell(self, told: LeadershipChange) -> None:
        name = self._around.me.name
        if told.lost is None:
            sentence = f"{name} leads, term {told.term}: {self._why_vacant}"
        else:
            sentence = f"{name} does not lead any more, term {told.term}: {told.lost.value}"
        log.info(sentence)
        self._around.told(told.term, sentence)

    async def _tick(self) -> None:
        while True:
            state, seen = self.state, self.state.seen
            doubted = state.phase is ElectionPhase.LEADING and self._around.doubted(state.term)
            dead = state.phase is ElectionPhase.FOLLOWING and bool(
                seen and seen.leader and self._around.dead(seen.leader)
            )
            self._feed(election.Tick(self._now(), dead, doubted))
            await asyncio.sleep(min(TICK, self._timings.renew_every.total_seconds() / 4))

    async def _watch(self) -> None:
        """The watch is a hint that makes us look at once; correctness does not rest on it."""
        own = OwnKey(self._key, self._timings.renew_every)
        async for change in self._store.watch(self._key, own=own):
            if self.state.phase in (ElectionPhase.FOLLOWING, ElectionPhase.RESTING) and self._is_news(change):
                self.look()

    def _is_news(self, change: Snapshot | Events) -> bool:
        """Whether another term may have begun or ended. The leader's renewals are no news, nor are its neighbours."""
        if isinstance(change, Snapshot):
            return True
        term = self.state.seen.term if self.state.seen else 0
        mine = [event.entry for event in change.batch if event.key == self._key]
        return any(entry is None or entry.create_revision != term for entry in mine)

    async def _do_things(self) -> None:
        while True:
            effect = await self._to_do.get()
            if effect is election.ReadLeader.NOW:
                self._look_waits = False
            event = await self._do(effect)
            if event is not None:
                self._feed(event)
            self._around.attempted(self.state, success=not isinstance(event, _FAILURES))

    async def _do(self, effect: Effect) -> Event | None:
        """One attempt, as one event. An answer that does not come in time is a failed attempt."""
        try:
            async with asyncio.timeout(self._timings.rpc_timeout.total_seconds()):
                return await self._attempt(effect)
        except _GAVE_UP as error:
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
        return election.LeaderRead(self._now(), await self._seen())

    def _failed(self, effect: Effect, error: Exception) -> Event | None:
        log.debug(f"an attempt of the election failed: {type(effect).__name__}: {error}")
        now = self._now()
        if isinstance(effect, Campaign):
            return election.CampaignFailed(now)
        if isinstance(effect, Renew):
            gone = isinstance(error, LeaseGone)
            return election.TermOver(now, effect.term) if gone else election.RenewFailed(now)
        if isinstance(effect, RecordHistory):
            self._unrecorded = effect.term  # leadership does not depend on it, but who asks why it ended does
            return None
        return election.Resigned(now) if isinstance(effect, Resign) else election.LeaderReadFailed(now)

    async def _seen(self) -> SeenLeader:
        return _seen(await self._store.get(self._key))

    async def _campaign(self) -> Event:
        sent, self._since = self._now(), self._around.clock.wall()
        lease = await self._store.grant(self._timings.ttl)
        self._feed(election.Leased(self._now(), sent, lease))
        absent = Compare(self._key, Aspect.CREATE_REVISION, 0)
        take: Sequence[Operation] = [Put(self._key, self._value(), lease), Get(self._history_key)]
        result = await self._store.txn([absent], take, [Get(self._key)])
        if result.succeeded:
            self._learn_why_vacant(result.results[-1])
            return election.Won(self._now(), result.revision)
        await self._store.revoke(lease)
        (entries,) = result.results
        assert not isinstance(entries, int)
        return election.Beaten(self._now(), _seen(entries[0] if entries else None))

    def _learn_why_vacant(self, kept: int | Sequence[Entry]) -> None:
        """What the history says of the last reign is better than a guess: whoever ended it said why."""
        assert not isinstance(kept, int)
        history = self._decoded(kept[0] if kept else None)
        if history.periods:
            last = history.periods[-1]
            self._why_vacant = f"{last.name} led before, and that ended because {last.why or _LEFT_OPEN}"

    def _value(self) -> bytes:
        return LEADER.encode(msgspec.structs.replace(self._around.me, since=self._since))

    async def _renew(self, effect: Renew) -> Event:
        sent = self._now()
        if self.state.phase is not ElectionPhase.LEADING:
            return election.RenewFailed(sent)  # given up while this waited: a lease that lives longer helps nobody
        await self._store.renew(effect.lease)
        if not await self._proven(effect):
            return election.TermOver(self._now(), effect.term)
        self._tell_renewals(effect.term, sent)
        if self._unrecorded == effect.term:
            self._unrecorded = 0
            self._plan(RecordHistory(effect.term))
        return election.Renewed(self._now(), sent, effect.term)

    def _tell_renewals(self, term: int, sent: Instant) -> None:
        now = self._now()
        self._renewals = self._renewals.plus(term, sent, now)
        if now - self._renewals.since >= _TELL_RENEWALS:
            log.info(f"{self._around.me.name} still leads, term {term}: {self._renewals}")
            self._renewals = Renewals()

    async def _proven(self, effect: Renew) -> bool:
        """C11: an old etcd acknowledges the renewal of a revoked lease; only this transaction is a proof."""
        ours = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        try:
            return (await self._store.txn([ours], [Put(self._key, self._value(), effect.lease)])).succeeded
        except NoSpace:
            # C35: a store that is full still renews and compares, and a leader is needed all the more.
            return (await self._store.txn([ours], [Get(self._key)])).succeeded

    async def _clear(self, effect: Clear) -> Event:
        same = Compare(self._key, Aspect.MOD_REVISION, effect.mod_revision)
        term = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        # Whoever wins now may be another server, which could only guess why the place is vacant.
        if await self._delete_key([same, term], effect.term, _DIED_HERE):
            self._why_vacant = f"{self._predecessor} died on this machine, and its key was cleared"
        return election.LeaderRead(self._now(), await self._seen())

    async def _resign(self, effect: Resign) -> Event:
        ours = Compare(self._key, Aspect.CREATE_REVISION, effect.term)
        await self._delete_key([ours], effect.term, effect.why.value)
        await self._store.revoke(effect.lease)
        return election.Resigned(self._now())

    async def _delete_key(self, compares: Sequence[Compare], term: int, why: str) -> bool:
        """Vacates the place, and in the same transaction says why in the history."""
        words = await self._ended(term, why)
        try:
            return (await self._store.txn(compares, [Delete(self._key), *words])).succeeded
        except NoSpace:
            return (await self._store.txn(compares, [Delete(self._key)])).succeeded

    async def _ended(self, term: int, why: str) -> list[Put]:
        """The history with that reign ended; nothing when the history's last reign is another one."""
        history = await self._history()
        if not history.periods or history.periods[-1].term != term:
            return []
        ended = history.end(self._around.clock.wall(), why)
        return [Put(self._history_key, LEADERSHIP.encode(ended))]

    async def _history(self) -> History:
        return self._decoded(await self._store.get(self._history_key))

    def _decoded(self, entry: Entry | None) -> History:
        history = LEADERSHIP.decode(self._history_key, entry.value) if entry else History()
        return History() if isinstance(history, Bad) else history

    async def _record(self, effect: RecordHistory) -> None:
        me, history = self._around.me, await self._history()
        if history.periods and history.periods[-1].term == effect.term:
            return  # it is there, and only the answer was lost
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
