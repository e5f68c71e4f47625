"""The one reconcile loop: watch, diff, gate, apply. Every write to desired, observed and dataplane state passes here.

Level, not edge: a mark says only that a key may have changed; the loop reads its state when its turn comes. A full
pass merges source and target page by page; a partial pass reads the marked keys on both sides. Deletes are checked
against the source once more just before they are sent. What could not be applied stays in the ledger, with a reason,
until its retry is due or its gate opens. While a dependency is unreachable the loop waits and changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any, Generic

import structlog

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import (
    Away,
    Brake,
    Change,
    Gate,
    Ledger,
    Op,
    Outcome,
    Outstanding,
    Owned,
    PauseGate,
    Plan,
    changed,
    diff,
    plan_in_steps,
)
from holdfast.reconcile.change import K, V
from holdfast.reconcile.gate import BRAKE_GATE
from holdfast.runtime.cooperative import in_turns, listed
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.waiting import Waiting
from holdfast.runtime.reconciler.brake_memory import BrakeMemory
from holdfast.runtime.reconciler.dirty import Dirty, Taken
from holdfast.runtime.reconciler.narrator import DecisionNarrator
from holdfast.runtime.reconciler.outstanding import OutstandingChange, describe
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.reconciler.rekeying import Rekeying

log = structlog.get_logger(__name__)


class _Stopped(Exception):
    """Raised when an outcome says that no further change can succeed."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class _Ending(Exception):
    """Raised when the worker must stop: batches that have not begun are left to the next start."""


class Reconciler(Generic[K, V]):
    """Reconciles one place: keeps its target as its source wants it, as far as its gates allow."""

    def __init__(
        self,
        place: Place[K, V],
        context: Context,
        timings: LoopTimings | None = None,
        brake_memory: BrakeMemory | None = None,
    ) -> None:
        """`brake_memory` keeps the brake's sliding minute over a restart."""
        self.place = place
        self.dirty: Dirty[K] = Dirty(context.clock)
        self._counts = place.brake.counts if place.brake is not None and place.moves is not None else None
        self._individual = place.moves.individual if place.moves is not None else None
        self._clock = context.clock
        self._vitals = context.vitals
        self._metrics = context.metrics
        self._timings = timings or LoopTimings()
        self.ledger: Ledger[K, V] = Ledger(place.kinds, self._timings.backoff, self._counts)
        self._gates: Sequence[Gate[K, V]] = [*place.gates, *([place.brake] if place.brake else []), self.ledger]
        self._narrator = DecisionNarrator(place, context)
        self._have: Counter[str] = Counter()
        self._audit = NEVER
        self._recheck = NEVER
        self._next_list = NEVER
        self._failures = 0
        self._waiting = Waiting(context.clock)
        self.passes = 0
        """Number of finished full passes."""
        self.pass_took = Duration(0)
        """Duration of the last full pass."""
        self.in_hand: Taken[K] = Taken()
        """Marks that the current turn works on: they wait as well, until it ends."""
        self._in_turn = False
        self._stopping = asyncio.Event()
        self._reachable = asyncio.Event()
        """Ends the pause after a failed turn: the target has told of a change, or the worker stops."""
        self._brake_memory = brake_memory
        if place.brake is not None and brake_memory is not None:
            brake_memory.recall(place.brake, context.clock.now())
        self._vitals.consumes(self)
        self._vitals.audited(self._timings.audit)  # the first full pass gets a whole interval as well

    def backlog(self) -> int:
        """Count objects, not marks: one that is marked, in hand and outstanding counts once (rule 10). A turn that is
        under way counts as one at least: if it hangs, that is a stall, also before it knows of any object."""
        keys = {*self.dirty, *self.in_hand.keys}
        known = sum(self.ledger.outstanding(key) is not None for key in keys)
        waiting = len(keys) + self.dirty.is_everything + len(self.ledger) - known
        return waiting or int(self.is_in_turn())

    def is_in_turn(self) -> bool:  # protection: C4
        """True while a turn is under way."""
        return self._in_turn

    def oldest(self) -> Instant:
        waiting = [self.dirty.oldest(), self.in_hand.since, min((entry.since for entry in self.ledger), default=NEVER)]
        return min(filter(None, waiting), default=NEVER)

    async def run(self, stopping: asyncio.Event) -> None:
        """Reconcile until `stopping` is set; a batch that has begun is finished first."""
        self._stopping = stopping
        waker = asyncio.create_task(self._wake_at(stopping))
        try:
            while not stopping.is_set():
                await self.turn()
                await self._rest()
        finally:
            waker.cancel()

    async def turn(self) -> None:
        """Run one turn: whatever is due now. Never raises because a dependency is unreachable."""
        taken: Taken[K] = Taken()
        self.dirty.begin()
        self._in_turn = True
        try:
            await self._fetch()
            await self._recheck_gates()
            self.in_hand = taken = self._take_due()
            if taken.everything:
                await self._full_pass()
            elif taken.keys:
                await self._plan_and_apply(await self._compare(taken.keys), taken.keys)
            await self._settle()
            self._note_reachable()
            self._vitals.attempted(success=True, state=self._state())
        except _Ending:
            self._put_back(taken)
        except (Away, _Stopped) as error:
            self._put_back(taken)
            self._note_away(error.what, str(error))
            self._vitals.attempted(success=False, state=f"waiting: {error.what}")
        finally:
            self.in_hand = Taken()
            self._in_turn = False

    def target_changed(self, keys: Collection[K] | None) -> None:
        """Compare these objects, or all, and try at once what failed before: the target is not as it was then."""
        self.ledger.clear_backoff(keys)
        self._reachable.set()
        if keys is None:
            self.dirty.mark_all()
        else:
            self.dirty.mark(keys)

    def _note_away(self, what: str, why: str) -> None:
        self._failures += 1
        self.place.on_away(what)
        if self._waiting.is_news(what):
            fields = self._waiting.fields()
            log.warning(
                "waiting for a dependency; state is left as it is", place=self.place.name, what=what, why=why, **fields
            )

    def _note_reachable(self) -> None:
        if waited := self._waiting.end():
            log.info("dependency reachable again; reconciling", place=self.place.name, **waited)
        self._failures = 0

    async def _fetch(self) -> None:
        if self.place.feed is not None:
            self.dirty.mark(await self.place.feed.fetch())

    async def _settle(self) -> None:
        if self.place.feed is not None and await self.place.feed.settle(self.is_open):
            self.dirty.wake()

    def is_open(self, key: K) -> bool:
        """True when this object is marked or has an outstanding change."""
        return key in self.dirty or self.ledger.outstanding(key) is not None

    async def _wake_at(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self.dirty.wake()
        self._reachable.set()

    async def _rest(self) -> None:
        if not self._failures:
            await self.dirty.wait(self._until_next_turn())
            return
        # While a dependency is unreachable, new marks must not make the loop spin.
        pause = min(self._timings.patience, Duration(milliseconds=100) * (1 << min(self._failures - 1, 10)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause.total_seconds()):
                await self._reachable.wait()
        self._reachable.clear()

    def _until_next_turn(self) -> Duration:
        now = self._clock.now()
        times = [self._audit, self.ledger.next_due(), self._recheck if len(self.ledger) else None]
        # Instants are finer than durations: a wait rounded down would end just before its time, again and again.
        return min(time for time in times if time is not None) - now + Duration(microseconds=1)

    def _take_due(self) -> Taken[K]:
        now = self._clock.now()
        if now >= self._audit:
            self.dirty.mark_all()
        self.dirty.mark(self.ledger.due(now))
        return self.dirty.take()

    def _put_back(self, taken: Taken[K]) -> None:
        if taken.everything:
            self.dirty.mark_all(taken.since)
        self.dirty.mark(taken.keys, taken.since)

    async def _recheck_gates(self) -> None:
        """Mark held changes that their gates would release now, and request the list that could release the brake."""
        now = self._clock.now()
        if not len(self.ledger) or now < self._recheck:
            return
        brake = self.place.brake
        if brake is not None and now >= self._next_list and brake.wants_list(now - self._timings.linger):
            await self._confirm(brake, now)
        tallies, have = self._counted()
        of = self.place.kinds.of
        held = [entry.change.key for entry in self.ledger if entry.closed is not None]
        closed = {key for key in held if self._closed(key, tallies[of(key)], have.get(of(key), 0), now)}
        self.dirty.mark(self._released(held, closed))
        # However much is held, checking the gates takes no more than a twentieth of the time.
        took = self._clock.now() - now
        self._recheck = now + max(self._timings.recheck, 20 * took)

    async def _confirm(self, brake: Brake[K, V], now: Instant) -> None:
        """Requests a fresh list for the brake. Without one only its deletes stay held; creates and repairs pass."""
        try:
            await self.place.source.refresh()
        except Away as away:
            if not self._next_list:
                log.warning("no fresh list for the brake; its deletes stay held", place=self.place.name, why=str(away))
            self._next_list = self._clock.now() + self._timings.patience
            return
        self._next_list = NEVER
        brake.listed(now)
        self.dirty.mark_all()

    def _closed(self, key: K, tally: Mapping[Op, int], have: int, now: Instant) -> bool:
        """True if a held change would be held again. The brake is asked only about what it holds itself: it does not
        count what other gates hold, so what they release it judges in the next plan, with all of it."""
        entry = self.ledger.outstanding(key)
        assert entry is not None
        assert entry.closed is not None
        is_braked = entry.closed.gate == BRAKE_GATE
        gates = (gate for gate in self._gates if is_braked or gate is not self.place.brake)
        return any(gate.judge(entry.change, tally, have, now) is not None for gate in gates)

    def _released(self, held: Sequence[K], closed: Set[K]) -> Sequence[K]:
        """Return the held keys that no gate holds any more; one half of a move waits for the other."""
        individual = self._individual
        if individual is None or len(closed) == len(held):
            return [key for key in held if key not in closed]
        waiting = {individual(key) for key in closed} - {None}
        return [key for key in held if key not in closed and individual(key) not in waiting]

    def _counted(self, except_for: Set[K] = frozenset()) -> tuple[Mapping[str, Mapping[Op, int]], Mapping[str, int]]:
        """Count what is outstanding and what is present, for the brake: without what other gates hold (C71)."""
        outstanding, aside = self.ledger.counted(except_for)
        have = {kind: count - aside[kind] for kind, count in self._have.items()} if any(aside.values()) else self._have
        return outstanding, have

    async def _full_pass(self) -> None:
        """Merge source and target page by page, in constant memory for unchanged objects.

        Creates and replaces are applied with their page; deletes wait for the end, so that the brake sees their total,
        and so does every create that may be half of a move.
        """
        began, moves = self._clock.now(), self.place.moves
        if moves is not None:
            moves.begin()
        deletes: list[Change[K, V]] = []
        counts: Counter[str] = Counter()
        before = self._have.copy()
        settled = {entry.change.key for entry in self.ledger}
        done: set[K] = set()
        after: K | None = None
        while True:
            present, upto = await self.place.target.read(after)
            wanted = await self.place.source.read(after, upto)
            changes = await in_turns(listed(diff(wanted, present, self.place.same)), self._progressed)
            settled.difference_update(change.key for change in changes)
            counts.update(self.place.kinds.census([key for key, _ in present]))
            deletes += [change for change in changes if change.op is Op.DELETE]
            ready = [change for change in changes if change.op is not Op.DELETE]
            if moves is not None:
                ready = moves.withhold(changes)
            ready = [change for change in await self._unchanged_since(ready) if change.key not in done]
            await self._plan_and_apply(ready, {change.key for change in ready})
            if self.place.live_first:
                done.update(await self._apply_live_changes())
            if upto is None:
                break
            after = upto
        # The pages counted what was present; `_have - before` is what this pass has created and deleted since.
        self._have.subtract(before)
        self._have.update(counts)
        settled -= done
        deletes = [change for change in deletes if change.key not in done]
        self.ledger.note(Plan((), (), settled), self._clock.now())
        if moves is not None:
            deletes = await self._move(moves, deletes)
        await self._plan_and_apply(deletes, {change.key for change in deletes} | settled)
        self.passes += 1
        self.pass_took = self._clock.now() - began
        self._audit = self._clock.now() + self._timings.audit
        self._vitals.audited(self._timings.audit)

    async def _apply_live_changes(self) -> Set[K]:
        """Reconcile the keys marked since the pass began and return them; the rest of the pass skips them."""
        await self._fetch()
        taken, whole = self.dirty.take(), self.in_hand
        if taken.everything:
            self.dirty.mark_all(taken.since)
        if taken.keys:
            self.in_hand = Taken(True, taken.keys, taken.since)
            await self._plan_and_apply(await self._compare(taken.keys), taken.keys)
            self.in_hand = whole
        return taken.keys

    async def _unchanged_since(self, changes: list[Change[K, V]]) -> list[Change[K, V]]:
        """Drop the changes of keys marked since the pass began: they are compared again."""
        # protection: C22, written from the old list a deleted object would be created again
        if changes:
            await self._fetch()
        return [change for change in changes if change.key not in self.dirty]

    async def _move(self, moves: Rekeying[K, V], deletes: list[Change[K, V]]) -> list[Change[K, V]]:
        """Apply the withheld creates and the moves; returns the deletes that are not part of a move."""
        new = await self._unchanged_since(moves.rest())
        await self._plan_and_apply(new, {change.key for change in new})
        for found in moves.found(self._timings.batch):
            unchanged = {change.key for change in await self._unchanged_since(found)}
            halves, split = moves.without(found, {change.key for change in found} - unchanged)
            self.dirty.mark(split)
            await self._plan_and_apply(halves, {change.key for change in halves})
        return [change for change in deletes if not moves.is_moving(change.key)]

    async def _plan_and_apply(self, changes: list[Change[K, V]], compared: Set[K]) -> None:
        changes, compared = await self._completed(changes, compared)
        now = self._clock.now()
        others, have = self._counted(compared)
        planning = plan_in_steps(
            changes,
            self._gates,
            have,
            now,
            self.place.kinds,
            outstanding=others,
            compared=compared,
            individual=self._individual,
            counts=self._counts,
        )
        made = await in_turns(planning, self._progressed)
        self._narrator.held(self.ledger.note(made, now))
        if self.place.brake is not None:
            self.place.brake.note(made, now)
        for batch in self._batches(made.ready):
            if self._stopping.is_set():
                raise _Ending
            outcomes = await self._apply_recorded(await self._still_wanted(batch))
            self._note(outcomes)
            self._vitals.attempted(success=False)  # C4: a worker between slow batches is consuming, not stalled
            stopped = next((outcome.error for outcome in outcomes if outcome.stop), None)
            if stopped is not None:
                raise _Stopped(stopped)
        self._metrics.held(Counter((s.closed.gate, s.closed.reason.label) for s in self.ledger if s.closed))
        self._vitals.attempted(success=False)  # nor is one between two pages without changes

    def _progressed(self) -> None:
        self._vitals.attempted(success=False)  # C4: nor is one that plans a list of a hundred thousand

    async def _completed(self, changes: list[Change[K, V]], compared: Set[K]) -> tuple[list[Change[K, V]], Set[K]]:
        """Look up what the gates must know, and add the other halves of moves that were not compared this time."""
        look_up, other_keys = self.place.look_up, self.place.other_keys
        if not changes:
            return changes, compared
        if look_up is not None:
            await look_up(changes)
        # protection: C62, a half that is applied alone leaves its object under two keys or under none
        others = set(other_keys(changes)) - compared if other_keys is not None else ()
        if others:
            changes, compared = [*changes, *await self._compare(others)], {*compared, *others}
            if look_up is not None:
                await look_up(changes)
        return changes, compared

    def _batches(self, ready: Sequence[Change[K, V]]) -> Iterator[Sequence[Change[K, V]]]:
        size = self._timings.batch
        if len(ready) > size and self.place.moves is not None:
            return self.place.moves.batches(ready, size)
        return (ready[start : start + size] for start in range(0, len(ready), size))

    async def _compare(self, keys: Set[K]) -> list[Change[K, V]]:
        # The target first: the desired state is then at least as new as the actual state it is compared with.
        present = await self.place.target.get(keys)
        wanted = await self.place.source.get(keys)
        ordered: list[Any] = sorted(keys)
        return list(changed(ordered, wanted, present, self.place.same))

    async def _still_wanted(self, batch: Sequence[Change[K, V]]) -> list[Change[K, V]]:
        """Drop the deletes whose object is desired again by now."""
        # protection: N4, each delete is checked just before it is sent
        deletes = {change.key for change in batch if change.op is Op.DELETE}
        if not deletes:
            return list(batch)
        back = set(await self.place.source.get(deletes))
        self.dirty.mark(back)
        if back and self.place.moves is not None:
            rest, split = self.place.moves.without(batch, back)
            self.dirty.mark(split)
            return rest
        return [change for change in batch if change.key not in back]

    async def _apply_recorded(self, batch: Sequence[Change[K, V]]) -> Sequence[Outcome[K, V]]:
        """Apply a batch whose deletes the brake must know of after a restart, too."""
        brake, memory = self.place.brake, self._brake_memory
        if brake is None or memory is None:
            return await self._apply(batch)
        now = self._clock.now()
        added = memory.add(brake, batch, now)
        try:
            outcomes = await self._apply(batch)
        except Away:
            memory.take_back(brake, added, now)
            raise
        failed = [outcome.change for outcome in outcomes if outcome.error is not None]
        memory.take_back(brake, brake.spent(failed, now), now)
        return outcomes

    async def _apply(self, batch: Sequence[Change[K, V]]) -> Sequence[Outcome[K, V]]:
        outcomes = list(await self.place.target.apply(batch)) if batch else []
        if len(outcomes) != len(batch):
            raise RuntimeError(f"{self.place.name}: {len(batch)} changes gave {len(outcomes)} outcomes")
        if not self.place.read_back:
            return outcomes
        done = [outcome.change.key for outcome in outcomes if outcome.error is None]
        present = await self.place.target.get(done) if done else {}
        return [self._read_back(outcome, present) if outcome.error is None else outcome for outcome in outcomes]

    def _read_back(self, outcome: Outcome[K, V], present: Mapping[K, Owned[V]]) -> Outcome[K, V]:
        new, found = outcome.change.new, present.get(outcome.change.key)
        if new is None:
            return outcome if found is None else Outcome(outcome.change, "still present when read back")
        if found is None:
            return Outcome(outcome.change, "missing when read back")
        return (
            outcome if self.place.same(new.value, found.value) else Outcome(outcome.change, "different when read back")
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
        failing = sum(1 for entry in self.ledger if entry.is_failed)
        if gates:
            return f"held: {', '.join(sorted(gates))}"
        now = self._clock.now()
        if any(isinstance(gate, PauseGate) and gate.is_paused(now) for gate in self.place.gates):
            return "paused"
        return f"failing: {failing}" if failing else "ok"

    @property
    def present(self) -> Mapping[str, int]:
        """Number of present objects of each kind, as far as known."""
        return self._have

    def held(self) -> Counter[str]:
        """Count the changes that each gate holds."""
        return Counter(entry.closed.gate for entry in self.ledger if entry.closed and entry.is_held)

    def seal(self, gate: str) -> str:
        """Return a digest of exactly the objects that the gate holds, so that an operator allows what was shown."""
        held = sorted(self.place.show(s.change.key) for s in self.ledger if s.closed and s.closed.gate == gate)
        return hashlib.sha256("\0".join(held).encode()).hexdigest()[:16]

    def outstanding_for(self, key: K) -> OutstandingChange | None:
        """Describe the outstanding change of one object; None when it is as desired."""
        entry = self.ledger.outstanding(key)
        return None if entry is None else self.describe(entry)

    def outstanding(self, most: int = 1_000) -> list[OutstandingChange]:
        """Describe the outstanding changes, as `plan`, `allow`, `status` and `explain` show them."""
        return [self.describe(entry) for entry in itertools.islice(self.ledger, most)]

    def describe(self, entry: Outstanding[K, V]) -> OutstandingChange:
        key = entry.change.key
        return describe(entry, key=self.place.show(key), kind=self.place.kinds.of(key), now=self._clock.now())


_GROWTH = {Op.DELETE: -1, Op.REPLACE: 0, Op.CREATE: 1}
