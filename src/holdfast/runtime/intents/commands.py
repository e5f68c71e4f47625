"""What an operator asked for at run time: pause, resume, allow, forget. Said by whom, why, until when; kept on disk.

Every place that reconciles offers the same commands (`offer`); what was asked for is kept in the worker's book.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic

import msgspec
import structlog

from holdfast.model.base.time import Instant
from holdfast.reconcile import Brake, Pause, PauseGate, SyncGate
from holdfast.reconcile.change import K, V
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.book import IntentFile, WorkerIntent, WorkerIntents, request_intent
from holdfast.runtime.reconciler import Reconciler

log = structlog.get_logger(__name__)


class IntentCommands(Generic[K, V]):
    """The operator's commands on one reconciler."""

    def __init__(self, worker: Worker, reconciler: Reconciler[K, V], intent: PauseGate[K], sync: SyncGate) -> None:
        self._worker = worker
        self._clock: Clock = worker.clock
        self._reconciler = reconciler
        self._brake: Brake[K, V] | None = reconciler.place.brake
        self._intent = intent
        self._sync = sync
        self._book = IntentFile(worker.paths, worker.name)
        self._take_effect()
        for name in self._wishes.forgotten:
            sync.forget(name)

    @property
    def _wishes(self) -> WorkerIntents:
        return self._book.wishes

    def offer(self) -> None:
        """Adds the commands to the worker's control socket."""
        self._worker.handlers |= {
            "pause": self._pause,
            "resume": self._resume,
            "allow": self._allow,
            "forget": self._forget,
            "held": self._held,
            "sync": self._look_at_all,
        }

    def heard(self) -> None:
        """A source that was forgotten and has delivered a complete list after all counts again, also at the next start:
        before its list came there, everything of it would look unwanted."""
        sources = self._sync.sources
        back = [name for name in self._wishes.forgotten if name in sources and sources[name].revision is not None]
        if not back:
            return
        left = {name: wish for name, wish in self._wishes.forgotten.items() if name not in back}
        try:
            self._book.keep(msgspec.structs.replace(self._wishes, forgotten=left))
        except OSError as error:
            log.error(f"that {', '.join(back)} is not forgotten any more cannot be written down: {error}")
            return
        for name in back:
            sentence = f"{name}, which was forgotten, has delivered a complete list: it counts again"
            log.warning(sentence)
            record = Decision(self._clock.wall(), self._worker.name, "forget", self._intent.name, "over", sentence)
            self._worker.decisions.write([record])

    async def _pause(self, request: Request, who: Who) -> str:
        wish = request_intent(request, who, self._clock)
        self._keep(msgspec.structs.replace(self._wishes, pause=wish), "pause", wish)
        return f"{self._intent.name} is paused{wish.lasting}; end it with: holdfast resume {self._intent.name}"

    async def _resume(self, request: Request, who: Who) -> str:
        if self._wishes.pause is None:
            raise Declined(f"{self._intent.name} is not paused")
        wish = WorkerIntent(who.name, str(request.args.get("reason", "")), self._clock.wall())
        self._keep(msgspec.structs.replace(self._wishes, pause=None), "resume", wish)
        return f"{self._intent.name} goes on"

    async def _allow(self, request: Request, who: Who) -> str:
        if self._brake is None:
            raise Declined(f"{self._intent.name} has no brake")
        wish = request_intent(request, who, self._clock)
        if wish.until is not None:
            self._keep(msgspec.structs.replace(self._wishes, allow=wish), "allow", wish)
            return f"{self._brake.name} lets everything through{wish.lasting}"
        held, shown = self._reconciler.held()["brake"], request.args.get("shown")
        if not held:
            raise Declined(f"{self._brake.name} holds nothing, so there is nothing to allow")
        if shown is not None and shown != held:
            raise Declined(
                f"{shown} were shown but {held} are held now: look again (holdfast plan {self._intent.name})"
            )
        if request.args.get("seal", seal := self._reconciler.seal("brake")) != seal:
            raise Declined(f"others than were shown are held now: look again (holdfast plan {self._intent.name})")
        count = self._brake.allow()
        self._tell("allow", wish, f"{who.name} let {count:,} held deletes through once: “{wish.why}”")
        self._reconciler.dirty.mark_all()
        return f"{count:,} held deletes go through once"

    async def _forget(self, request: Request, who: Who) -> str:
        name, wish = str(request.args.get("source", "")), request_intent(request, who, self._clock)
        if name not in self._sync.sources:
            known = ", ".join(sorted(self._sync.sources)) or "none"
            raise Declined(f"there is no source {name!r}; there are: {known}")
        forgotten = {**self._wishes.forgotten, name: wish}
        self._keep(msgspec.structs.replace(self._wishes, forgotten=forgotten), "forget", wish)
        self._sync.forget(name)
        return f"{name} counts as complete and empty; what only it wanted goes, behind the brake"

    async def _held(self, _request: Request, _who: Who) -> Any:
        """The held plan, as shown before an operator opens a gate: how much in all, and the first of it."""
        return {
            "passes": self._reconciler.passes,
            "total": len(self._reconciler.ledger),
            "gates": self._reconciler.held(),
            "seal": self._reconciler.seal("brake"),
            "objects": msgspec.to_builtins(self._reconciler.outstanding()),
        }

    async def _look_at_all(self, _request: Request, _who: Who) -> str:
        self._reconciler.dirty.mark_all()
        return f"{self._intent.name} compares everything again"

    def _keep(self, wishes: WorkerIntents, what: str, wish: WorkerIntent) -> None:
        self._book.keep(wishes)
        self._take_effect()
        why = f": “{wish.why}”" if wish.why else ""
        self._tell(what, wish, f"{wish.who} asked for {what} of {self._intent.name}{wish.lasting}{why}")
        self._reconciler.dirty.mark_all()

    def _tell(self, what: str, wish: WorkerIntent, sentence: str) -> None:
        log.info(sentence)
        record = Decision(wish.at, self._worker.name, what, self._intent.name, "asked", sentence)
        self._worker.decisions.write([record])

    def _take_effect(self) -> None:
        take_effect(self._wishes, self._clock, self._intent, self._brake)


def take_effect(wishes: WorkerIntents, clock: Clock, intent: PauseGate[K], brake: Brake[K, V] | None) -> None:
    """What was asked for, put to the gates that it is about."""

    def instant(at: datetime) -> Instant:
        """A wall-clock time of this same machine on the boot clock."""
        return clock.now() + (at - clock.wall())

    def deadline(wish: WorkerIntent) -> Instant | None:
        return None if wish.until is None else instant(wish.until)

    pause, allow = wishes.pause, wishes.allow
    intent.pause = None if pause is None else Pause(pause.who, pause.why, instant(pause.at), deadline(pause))
    if allow is not None and brake is not None:
        brake.allow(until=deadline(allow))
