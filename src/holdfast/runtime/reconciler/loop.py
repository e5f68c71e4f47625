"""The one loop: watch, diff, gate, apply. Every write that Holdfast makes to the world goes through here.

Level, not edge: a mark says only that something may have changed; the state itself is looked up when its turn comes.
A full pass merges source and target page by page; a partial pass looks up the marked keys on both sides. Deletes are
looked up in the source once more just before they are sent. What could not be done stays in the ledger, with a reason,
and is looked at again when its pause is over or its gate opens. A dependency that is away is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Generic

import structlog

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import (
    BACKOFF,
    Away,
    Brake,
    Change,
    Closed,
    Gate,
    Ledger,
    Op,
    Outcome,
    Owned,
    PauseGate,
    Plan,
    changed,
    diff,
    plan,
)
from holdfast.reconcile.change import K, V
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.reconciler.dirty import Dirty
from holdfast.runtime.reconciler.narrator import DecisionNarrator
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.reconciler.rekeying import Rekeying

log = structlog.get_logger(__name__)


class _Stopped(Exception):
    """An outcome said that no further change can succeed."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class _Ending(Exception):
    """The worker is to stop: what has not begun is left to the next start."""


class Reconciler(Generic[K, V]):
    def __init__(self, place: Place[K, V], context: Context, timings: LoopTimings | None = None) -> None:
        self.place = place
        self.dirty: Dirty[K] = Dirty(context.clock)
        self.ledger: Ledger[K, V] = Ledger(place.kinds)
        self._gates: Sequence[Gate[K, V]] = [*place.gates, *([place.brake] if place.brake else []), self.ledger]
        self._clock = context.clock
        self._vitals = context.vitals
        self._metrics = context.metrics
        self._timings = timings or LoopTimings()
        self._narrator = DecisionNarrator(place, context)
        self._have: Counter[str] = Counter()
        self._audit = NEVER
        self._recheck = NEVER
        self._ask_again = NEVER
        self._failures = 0
        self.passes = 0
        """Full passes that were finished."""
        self.pass_took = Duration(0)
        """How long the last of them took."""
        self._stopping = asyncio.Event()
        self._vitals.consumes(self)
        self._vitals.audited(self._timings.audit)  # the first one has its time, too

    def backlog(self) -> int:
        """Objects, not marks: one that is both to be looked at and outstanding waits once (rule 10)."""
        return len(self.dirty) + len(self.ledger) - sum(self.ledger.story(key) is not None for key in self.dirty)

    def oldest(self) -> Instant:
        waiting = [self.dirty.oldest(), min((story.since for story in self.ledger), default=NEVER)]
        return min(filter(None, waiting), default=NEVER)

    async def run(self, stopping: asyncio.Event) -> None:
        """Keeps the target as wanted until told to stop; a batch under way is finished first."""
        self._stopping = stopping
        waker = asyncio.create_task(self._wake_at(stopping))
        try:
            while not stopping.is_set():
                await self.turn()
                await self._rest(stopping)
        finally:
            waker.cancel()

    async def turn(self) -> None:
        """One turn of the loop: whatever is due now. Never raises because a dependency is away."""
        everything, since = False, NEVER
        keys: Set[K] = set()
        self.dirty.begin()
        try:
            await self._fetch()
            await self._open_what_can_be()
            everything, keys, since = self._take_due()
            if everything:
                await self._full_pass()
            elif keys:
                await self._carry_out(await self._compare(keys), keys)
            await self._settle()
            if self._failures:
                log.info(f"{self.place.name} goes on: what it waited for is there again")
            self._failures = 0
            self._vitals.attempted(success=True, state=self._state())
        except _Ending:
            self._put_back(everything, keys, since)
        except (Away, _Stopped) as obstacle:
            self._put_back(everything, keys, since)
            self._failures += 1
            if self._failures == 1:
                log.warning(f"{self.place.name} waits: {obstacle}; what is programmed stays as it is")
            self._vitals.attempted(success=False, state=f"waiting: {obstacle.what}")

    async def _fetch(self) -> None:
        if self.place.feed is not None:
            self.dirty.mark(await self.place.feed.fetch())

    async def _settle(self) -> None:
        if self.place.feed is not None and await self.place.feed.settle(self.is_open):
            self.dirty.wake()

    def is_open(self, key: K) -> bool:
        """Whether something about this object is still to be done or looked at."""
        return key in self.dirty or self.ledger.story(key) is not None

    async def _wake_at(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self.dirty.wake()

    async def _rest(self, stopping: asyncio.Event) -> None:
        if not self._failures:
            await self.dirty.wait(self._until_next_turn())
            return
        # While something is away, new marks must not turn the loop into a spin.
        pause = min(self._timings.patience, Duration(milliseconds=100) * (1 << min(self._failures - 1, 10)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause.total_seconds()):
                await stopping.wait()

    def _until_next_turn(self) -> Duration:
        now = self._clock.now()
        times = [self._audit, self.ledger.next_due(), self._recheck if len(self.ledger) else None]
        # Instants are finer than durations: rounded down, the wait would end just before its time, again and again.
        return min(time for time in times if time is not None) - now + Duration(microseconds=1)

    def _take_due(self) -> tuple[bool, Set[K], Instant]:
        now = self._clock.now()
        if now >= self._audit:
            self.dirty.mark_all()
        self.dirty.mark(self.ledger.due(now))
        return self.dirty.take()

    def _put_back(self, everything: bool, keys: Set[K], since: Instant) -> None:
        if everything:
            self.dirty.mark_all(since or None)
        self.dirty.mark(keys, since or None)

    async def _open_what_can_be(self) -> None:
        """Marks what a gate held and would let through now, and fetches the list that could open the brake."""
        now = self._clock.now()
        if not len(self.ledger) or now < self._recheck:
            return
        brake = self.place.brake
        if brake is not None and now >= self._ask_again and brake.wants_list(now - self._timings.linger):
            await self._confirm(brake, now)
        tallies = self.ledger.outstanding()
        held = [story.change for story in self.ledger if story.closed is not None]
        self.dirty.mark(c.key for c in held if self._closed(c, tallies[self.place.kinds.of(c.key)], now) is None)
        # However much is held, looking at the gates takes no more than a twentieth of the time.
        took = self._clock.now() - now
        self._recheck = now + max(self._timings.recheck, 20 * took)

    async def _confirm(self, brake: Brake[K, V], now: Instant) -> None:
        """A list that cannot be had keeps what the brake holds, and nothing else: creates and repairs flow."""
        try:
            await self.place.source.refresh()
        except Away as away:
            if not self._ask_again:
                log.warning(f"{self.place.name}: what the brake holds waits for a fresh list: {away}")
            self._ask_again = self._clock.now() + self._timings.patience
            return
        self._ask_again = NEVER
        brake.listed(now)
        self.dirty.mark_all()

    def _closed(self, change: Change[K, V], tally: Mapping[Op, int], now: Instant) -> Closed | None:
        have = self._have[self.place.kinds.of(change.key)]
        return next((c for gate in self._gates if (c := gate.judge(change, tally, have, now)) is not None), None)

    async def _full_pass(self) -> None:
        """Merges source and target page by page, in constant memory for what is unchanged.

        Creates and replaces flow with their page; deletes wait for the end, so that the brake sees their total, and so
        does whatever may turn out to be a move.
        """
        began, moves = self._clock.now(), self.place.moves
        if moves is not None:
            moves.begin()
        deletes: list[Change[K, V]] = []
        counts: Counter[str] = Counter()
        before = self._have.copy()
        settled = {story.change.key for story in self.ledger}
        done: set[K] = set()
        after: K | None = None
        while True:
            present, upto = await self.place.target.read(after)
            wanted = await self.place.source.read(after, upto)
            changes = list(diff(wanted, present, self.place.same))
            settled.difference_update(change.key for change in changes)
            counts.update(self.place.kinds.census([key for key, _ in present]))
            deletes += [change for change in changes if change.op is Op.DELETE]
            flowing = [change for change in changes if change.op is not Op.DELETE]
            if moves is not None:
                flowing = moves.kept_back(changes)
            flowing = [change for change in await self._unchanged_since(flowing) if change.key not in done]
            await self._carry_out(flowing, {change.key for change in flowing})
            if self.place.live_first:
                done.update(await self._do_live_ones())
            if upto is None:
                break
            after = upto
        self._have.subtract(before)  # what this pass has created and deleted since,
        self._have.update(counts)  # beside what was there
        settled -= done
        deletes = [change for change in deletes if change.key not in done]
        self.ledger.note(Plan((), (), settled), self._clock.now())
        if moves is not None:
            deletes = await self._move(moves, deletes)
        await self._carry_out(deletes, {change.key for change in deletes} | settled)
        self.passes += 1
        self.pass_took = self._clock.now() - began
        self._audit = self._clock.now() + self._timings.audit
        self._vitals.audited(self._timings.audit)

    async def _do_live_ones(self) -> Set[K]:
        """Looks at what has changed since the pass began; the rest of the pass has nothing to add about these."""
        await self._fetch()
        everything, keys, since = self.dirty.take()
        if everything:
            self.dirty.mark_all(since)
        if keys:
            await self._carry_out(await self._compare(keys), keys)
        return keys

    async def _unchanged_since(self, changes: list[Change[K, V]]) -> list[Change[K, V]]:
        """C22: what changed since the pass began gets a look of its own; written from the old list, it could come back
        from the dead."""
        if changes:
            await self._fetch()
        return [change for change in changes if change.key not in self.dirty]

    async def _move(self, moves: Rekeying[K, V], deletes: list[Change[K, V]]) -> list[Change[K, V]]:
        """Carries out what was kept back; the deletes that are left."""
        new = await self._unchanged_since(moves.rest())
        await self._carry_out(new, {change.key for change in new})
        for found in moves.found(self._timings.batch):
            halves = await self._unchanged_since(found)
            await self._carry_out(halves, {change.key for change in halves})
        return [change for change in deletes if not moves.is_moving(change.key)]

    async def _carry_out(self, changes: list[Change[K, V]], looked: Set[K]) -> None:
        now = self._clock.now()
        others = self.ledger.outstanding(except_for=looked)
        made = plan(changes, self._gates, self._have, now, self.place.kinds, outstanding=others, looked=looked)
        self._narrator.held(self.ledger.note(made, now))
        if self.place.brake is not None:
            self.place.brake.note(made, now)
        for batch in _batches(made.ready, self._timings.batch):
            if self._stopping.is_set():
                raise _Ending
            outcomes = await self._applied(await self._still_wanted(batch))
            self._note(outcomes)
            self._vitals.attempted(success=False)  # C4: a plan of many slow batches is consuming, not stalled
            stopped = next((outcome.error for outcome in outcomes if outcome.stop), None)
            if stopped is not None:
                raise _Stopped(stopped)
        self._metrics.held(Counter((s.closed.gate, s.closed.reason.label) for s in self.ledger if s.closed))
        self._vitals.attempted(success=False)  # a pass of many pages is, too, also where it finds nothing to change

    async def _compare(self, keys: Set[K]) -> list[Change[K, V]]:
        # The target first: what the source says is then at least as new as what it is compared with.
        present = await self.place.target.look(keys)
        wanted = await self.place.source.look(keys)
        ordered: list[Any] = sorted(keys)
        return list(changed(ordered, wanted, present, self.place.same))

    async def _still_wanted(self, batch: Sequence[Change[K, V]]) -> list[Change[K, V]]:
        """Drops the deletes whose object is wanted again by now (N4: liveness is looked at for each deletion)."""
        deletes = {change.key for change in batch if change.op is Op.DELETE}
        if not deletes:
            return list(batch)
        back = set(await self.place.source.look(deletes))
        self.dirty.mark(back)
        return [change for change in batch if change.op is not Op.DELETE or change.key not in back]

    async def _applied(self, batch: Sequence[Change[K, V]]) -> Sequence[Outcome[K, V]]:
        outcomes = list(await self.place.target.apply(batch)) if batch else []
        if len(outcomes) != len(batch):
            raise RuntimeError(f"{self.place.name}: {len(batch)} changes gave {len(outcomes)} outcomes")
        if not self.place.read_back:
            return outcomes
        done = [outcome.change.key for outcome in outcomes if outcome.error is None]
        present = await self.place.target.look(done) if done else {}
        return [self._read_back(outcome, present) if outcome.error is None else outcome for outcome in outcomes]

    def _read_back(self, outcome: Outcome[K, V], present: Mapping[K, Owned[V]]) -> Outcome[K, V]:
        new, found = outcome.change.new, present.get(outcome.change.key)
        if new is None:
            return outcome if found is None else Outcome(outcome.change, "it is still there when read back")
        if found is None:
            return Outcome(outcome.change, "it is not there when read back")
        return (
            outcome if self.place.same(new.value, found.value) else Outcome(outcome.change, "it reads back different")
        )

    def _note(self, outcomes: Sequence[Outcome[K, V]]) -> None:
        now, brake = self._clock.now(), self.place.brake
        self.ledger.note_outcomes(outcomes, now)
        if brake is not None:
            for outcome in outcomes:
                brake.note(outcome, now)
        done = [outcome.change for outcome in outcomes if outcome.error is None]
        for (kind, op), count in self.place.kinds.count(done).items():
            self._have[kind] += _GROWTH[op] * count
        self._narrator.applied(done, [outcome for outcome in outcomes if outcome.error is not None])

    def _state(self) -> str:
        gates = self.held()
        failing = sum(1 for story in self.ledger if story.error)
        gates.pop(BACKOFF, None)
        if gates:
            return f"held: {', '.join(sorted(gates))}"
        now = self._clock.now()
        if any(isinstance(gate, PauseGate) and gate.is_paused(now) for gate in self.place.gates):
            return "paused"
        return f"failing: {failing}" if failing else "ok"

    @property
    def present(self) -> Mapping[str, int]:
        """How many objects of each kind there are, as far as is known."""
        return self._have

    def held(self) -> Counter[str]:
        """How many changes each gate holds."""
        return Counter(story.closed.gate for story in self.ledger if story.closed)

    def seal(self, gate: str) -> str:
        """Stands for exactly the objects that the gate holds: as many others have another one."""
        held = sorted(self.place.show(s.change.key) for s in self.ledger if s.closed and s.closed.gate == gate)
        return hashlib.sha256("\0".join(held).encode()).hexdigest()[:16]

    def story(self, key: K) -> dict[str, Any] | None:
        """What is outstanding for one object, as `explain` shows it; None when it is as wanted."""
        story = self.ledger.story(key)
        return None if story is None else self._narrator.story(story, self._clock.now())

    def outstanding(self, most: int = 1_000) -> list[dict[str, Any]]:
        """What is not as wanted now, each with what stands in its way, as `plan`, `allow` and `explain` show it."""
        now = self._clock.now()
        return [self._narrator.story(story, now) for story in itertools.islice(self.ledger, most)]


_GROWTH = {Op.DELETE: -1, Op.REPLACE: 0, Op.CREATE: 1}


def _batches(changes: Sequence[Change[K, V]], size: int) -> Iterator[Sequence[Change[K, V]]]:
    for start in range(0, len(changes), size):
        yield changes[start : start + size]
