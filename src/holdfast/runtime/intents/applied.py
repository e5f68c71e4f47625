"""Applied intents: put pauses and allows into effect on the gates of one place, and record in the history which were
set, changed, withdrawn or have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic

import msgspec
import structlog

from holdfast.model.control.intent import Intent, IntentKind, IntentName
from holdfast.model.control.scope import ScopeKind
from holdfast.reconcile import Brake, PauseGate
from holdfast.reconcile.change import K, V
from holdfast.runtime.control import Request, Who
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.reconciler import Reconciler

log = structlog.get_logger(__name__)


class AppliedIntents(Generic[K, V]):
    """Intents of one reconciler. `read` returns all of them, also expired ones."""

    def __init__(
        self,
        context: Context,
        reconciler: Reconciler[K, V],
        gate: PauseGate[K],
        read: Callable[[], Iterable[Intent]],
    ) -> None:
        self.holding: tuple[Intent, ...] = ()
        self._context = context
        self._reconciler = reconciler
        self._brake: Brake[K, V] | None = reconciler.place.brake
        self._gate = gate
        self._read = read
        self._put_into_effect(self._found())  # known before the start, so not recorded again

    def apply(self) -> None:
        """Apply the intents as they are now; called after every change, and now and then for those that expire."""
        before, found = {one.name: one for one in self.holding}, self._found()
        after = {one.name: one for one in found}
        if found == self.holding:
            return
        self._put_into_effect(found)
        wall = self._context.clock.wall()
        records = [
            Decision(wall, self._reconciler.place.name, name.what.value, str(name.scope), outcome, sentence)
            for name in sorted({*before, *after}, key=str)
            if (event := transition(name, before.get(name), after.get(name), wall)) is not None
            for outcome, sentence in [event]
        ]
        for one in records:
            log.info("intent changed", intent=one.op, scope=one.key, outcome=one.outcome, details=one.sentence)
        self._context.decisions.write(records)
        self._reconciler.dirty.mark_all()

    async def shown(self, _request: Request, _who: Who) -> Any:
        """Answer the command `intents`."""
        return msgspec.to_builtins(list(self.holding))

    def _found(self) -> tuple[Intent, ...]:
        wall = self._context.clock.wall()
        return tuple(one for one in self._read() if one.holds(wall))

    def _put_into_effect(self, intents: tuple[Intent, ...]) -> None:
        before, self.holding, clock = self.holding, intents, self._context.clock
        pauses = [one for one in intents if one.what is IntentKind.PAUSE and one.scope.target is not ScopeKind.BACKEND]
        self._gate.set(pauses, clock.wall(), clock.now())
        if self._brake is None:
            return
        if any(one.what is IntentKind.ALLOW for one in before):
            self._brake.end_allowance()
        for one in intents:
            if one.what is IntentKind.ALLOW and one.until is not None:
                self._brake.allow(until=clock.now() + (one.until - clock.wall()))


def transition(name: IntentName, old: Intent | None, new: Intent | None, wall: datetime) -> tuple[str, str] | None:
    """Return outcome and sentence of a change between two intents of one name; None if nothing changed that counts."""
    title = f"{name.what.value} of {name.scope}"
    if old is None and new is not None:
        return "set", f"{title} by {new.sentence}"
    if old is not None and new is None:
        outcome = "withdrawn" if old.holds(wall) else "expired"
        return outcome, f"{title} {'was withdrawn' if outcome == 'withdrawn' else 'expired'}; it was by {old.sentence}"
    if old is not None and new is not None and _terms(old) != _terms(new):
        return "changed", f"{title} changed: by {new.sentence}"
    return None


def _terms(intent: Intent) -> tuple[object, ...]:
    return intent.who, intent.why, intent.until, intent.weight
