"""Intent commands: pause, resume, allow and forget, each with who, why and until when.

Every place that reconciles offers the same commands (`offer`); `file` keeps the intents on disk.
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
from holdfast.runtime.intents.file import IntentFile, WorkerIntent, WorkerIntents, request_intent
from holdfast.runtime.reconciler import Reconciler

log = structlog.get_logger(__name__)


class IntentCommands(Generic[K, V]):
    """Commands of operators on one reconciler."""

    def __init__(self, worker: Worker, reconciler: Reconciler[K, V], pause_gate: PauseGate[K], sync: SyncGate) -> None:
        self._worker = worker
        self._clock: Clock = worker.clock
        self._reconciler = reconciler
        self._brake: Brake[K, V] | None = reconciler.place.brake
        self._pause_gate = pause_gate
        self._sync = sync
        self._intent_file = IntentFile(worker.paths, worker.name)
        self._apply_intents()
        for name in self._intents.forgotten:
            sync.forget(name)

    @property
    def _intents(self) -> WorkerIntents:
        return self._intent_file.intents

    def offer(self) -> None:
        """Add the commands to the worker's control socket."""
        self._worker.handlers |= {
            "pause": self._pause,
            "resume": self._resume,
            "allow": self._allow,
            "forget": self._forget,
            "held": self._held,
            "sync": self._compare_all,
        }

    def readmit_sources(self) -> None:
        """Count a forgotten source again once it has delivered a complete list, also at the next start: until that
        list arrives there, all its objects would look unwanted."""
        sources = self._sync.sources
        back = [name for name in self._intents.forgotten if name in sources and sources[name].revision is not None]
        if not back:
            return
        left = {name: intent for name, intent in self._intents.forgotten.items() if name not in back}
        try:
            self._intent_file.write(msgspec.structs.replace(self._intents, forgotten=left))
        except OSError as error:
            log.error("intents cannot be written; sources stay forgotten", sources=back, error=str(error))
            return
        for name in back:
            sentence = f"the forgotten source {name} has delivered a complete list and counts again"
            log.warning("forgotten source counts again", source=name)
            record = Decision(self._clock.wall(), self._worker.name, "forget", self._pause_gate.name, "over", sentence)
            self._worker.decisions.write([record])

    async def _pause(self, request: Request, who: Who) -> str:
        intent = request_intent(request, who, self._clock)
        self._keep(msgspec.structs.replace(self._intents, pause=intent), "pause", intent)
        return (
            f"{self._pause_gate.name} is paused{intent.lasting}; end it with: holdfast resume {self._pause_gate.name}"
        )

    async def _resume(self, request: Request, who: Who) -> str:
        if self._intents.pause is None:
            raise Declined(f"{self._pause_gate.name} is not paused")
        intent = WorkerIntent(who.name, str(request.args.get("reason", "")), self._clock.wall())
        self._keep(msgspec.structs.replace(self._intents, pause=None), "resume", intent)
        return f"{self._pause_gate.name} goes on"

    async def _allow(self, request: Request, who: Who) -> str:
        if self._brake is None:
            raise Declined(f"{self._pause_gate.name} has no brake")
        intent = request_intent(request, who, self._clock)
        if intent.until is not None:
            self._keep(msgspec.structs.replace(self._intents, allow=intent), "allow", intent)
            return f"{self._brake.name} lets everything through{intent.lasting}"
        held, shown = self._reconciler.held()["brake"], request.args.get("shown")
        if not held:
            raise Declined(f"{self._brake.name} holds nothing, so there is nothing to allow")
        if shown is not None and shown != held:
            raise Declined(
                f"{shown} were shown but {held} are held now: check again (holdfast plan {self._pause_gate.name})"
            )
        if request.args.get("seal", seal := self._reconciler.seal("brake")) != seal:
            raise Declined(f"others than were shown are held now: check again (holdfast plan {self._pause_gate.name})")
        count = self._brake.allow()
        self._record("allow", intent, f"{who.name} let {count:,} held deletes through once: “{intent.why}”")
        self._reconciler.dirty.mark_all()
        return f"{count:,} held deletes go through once"

    async def _forget(self, request: Request, who: Who) -> str:
        name, intent = str(request.args.get("source", "")), request_intent(request, who, self._clock)
        if name not in self._sync.sources:
            known = ", ".join(sorted(self._sync.sources)) or "none"
            raise Declined(f"there is no source {name!r}; there are: {known}")
        forgotten = {**self._intents.forgotten, name: intent}
        self._keep(msgspec.structs.replace(self._intents, forgotten=forgotten), "forget", intent)
        self._sync.forget(name)
        return f"{name} counts as complete and empty; what only this source wanted is deleted, subject to the brake"

    async def _held(self, _request: Request, _who: Who) -> Any:
        """Return the outstanding changes, as shown before an operator allows them: the total and the first of them."""
        return {
            "passes": self._reconciler.passes,
            "total": len(self._reconciler.ledger),
            "gates": self._reconciler.held(),
            "seal": self._reconciler.seal("brake"),
            "objects": msgspec.to_builtins(self._reconciler.outstanding()),
        }

    async def _compare_all(self, _request: Request, _who: Who) -> str:
        self._reconciler.dirty.mark_all()
        return f"{self._pause_gate.name} compares everything again"

    def _keep(self, intents: WorkerIntents, what: str, intent: WorkerIntent) -> None:
        self._intent_file.write(intents)
        self._apply_intents()
        why = f": “{intent.why}”" if intent.why else ""
        self._record(what, intent, f"{intent.who} asked for {what} of {self._pause_gate.name}{intent.lasting}{why}")
        self._reconciler.dirty.mark_all()

    def _record(self, what: str, intent: WorkerIntent, sentence: str) -> None:
        log.info("intent accepted", intent=what, why=sentence)
        record = Decision(intent.at, self._worker.name, what, self._pause_gate.name, "asked", sentence)
        self._worker.decisions.write([record])

    def _apply_intents(self) -> None:
        apply_intents(self._intents, self._clock, self._pause_gate, self._brake)


def apply_intents(intents: WorkerIntents, clock: Clock, pause_gate: PauseGate[K], brake: Brake[K, V] | None) -> None:
    """Apply the intents to the gates that they are about."""

    def instant(at: datetime) -> Instant:
        """Convert a wall-clock time of this machine to its boot clock."""
        return clock.now() + (at - clock.wall())

    def deadline(intent: WorkerIntent) -> Instant | None:
        return None if intent.until is None else instant(intent.until)

    pause, allow = intents.pause, intents.allow
    pause_gate.pause = None if pause is None else Pause(pause.who, pause.why, instant(pause.at), deadline(pause))
    if allow is not None and brake is not None:
        brake.allow(until=deadline(allow))
