"""Intent commands: pause, resume, allow, revoke and forget, each with who, why and until when.

Every place that reconciles offers the same commands, on intents in a file or in etcd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

import msgspec
import structlog

from holdfast.model.base.time import Duration
from holdfast.model.control.intent import IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile import Away, SyncGate
from holdfast.reconcile.change import K, V
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.store import IntentStore, request_intent
from holdfast.runtime.reconciler import Reconciler

log = structlog.get_logger(__name__)

APPLIED_WITHIN = Duration(seconds=2)
"""Time between two reads of the intents by a leader."""


class PauseCommands:
    """`pause` and `resume` of one scope. `apply` puts the intents into effect; None on a daemon that only stores them,
    where `elsewhere` ends the answer."""

    def __init__(
        self,
        intents: IntentStore,
        scope: Scope,
        context: Context,
        apply: Callable[[], None] | None,
        elsewhere: str = f" on the leader, within {APPLIED_WITHIN.total_seconds():g} s",
    ) -> None:
        self._intents = intents
        self._scope = scope
        self._context = context
        self._apply = apply
        self._elsewhere = elsewhere

    def handlers(self) -> Mapping[str, Handler]:
        return {"pause": self._pause, "resume": self._resume}

    async def _pause(self, request: Request, who: Who) -> str:
        intent = request_intent(request, who, self._context.clock, IntentKind.PAUSE, self._scope)
        await self._intents.keep(intent)
        when = await self._applied()
        sentence = f"{who.name} asked for pause of {self._scope}{intent.lasting}: “{intent.why}”"
        record(self._context, self._scope, "pause", sentence)
        return f"{self._scope} is paused{intent.lasting}{when}; end it with: holdfast resume {self._scope}"

    async def _resume(self, _request: Request, who: Who) -> str:
        name = IntentName(IntentKind.PAUSE, self._scope)
        if not await self._intents.drop([name], who.name):
            raise Declined(f"{self._scope} is not paused")
        when = await self._applied()
        record(self._context, self._scope, "resume", f"{who.name} asked for resume of {self._scope}")
        return f"{self._scope} goes on{when}"

    async def _applied(self) -> str:
        """End of the answer: empty if the intents are in effect already."""
        try:
            await self._intents.refresh()
        except Away as error:
            log.debug("intent is stored but not applied yet", error=str(error))
            return self._elsewhere
        if self._apply is None:
            return self._elsewhere
        self._apply()
        return ""


class IntentCommands(Generic[K, V]):
    """Commands of operators on one reconciler. `scope` is what `pause` and `resume` are about."""

    def __init__(
        self,
        context: Context,
        reconciler: Reconciler[K, V],
        applied: AppliedIntents[K, V],
        sync: SyncGate,
        scope: Scope,
        intents: IntentStore,
    ) -> None:
        self._context = context
        self._reconciler = reconciler
        self._applied = applied
        self._place = reconciler.place.name
        self._brake = reconciler.place.brake
        self._sync = sync
        self._intents = intents
        self._pauses = PauseCommands(intents, scope, context, applied.apply)
        self._allow_scope = Scope(ScopeKind.WORKER, self._place)
        for source in self._forgotten():
            sync.forget(source)

    def handlers(self) -> Mapping[str, Handler]:
        return {
            **self._pauses.handlers(),
            "allow": self._allow,
            "revoke": self._revoke,
            "forget": self._forget,
            "held": self._held,
            "sync": self._compare_all,
            "intents": self._applied.shown,
        }

    async def readmit_sources(self) -> None:
        """Count a forgotten source again once it has delivered a complete list, also at the next start: until that
        list arrives there, all its objects would look unwanted."""
        sources = self._sync.sources
        back = [name for name in self._forgotten() if name in sources and sources[name].revision is not None]
        if not back:
            return
        try:
            await self._intents.drop([_forget(name) for name in back], "")
        except Declined as error:
            log.error("intents cannot be written; sources stay forgotten", sources=back, error=str(error))
            return
        for name in back:
            sentence = f"the forgotten source {name} has delivered a complete list and counts again"
            log.warning("forgotten source counts again", source=name)
            over = Decision(self._context.clock.wall(), self._place, "forget", self._place, "over", sentence)
            self._context.decisions.write([over])

    async def _allow(self, request: Request, who: Who) -> str:
        if self._brake is None:
            raise Declined(f"{self._place} has no brake")
        intent = request_intent(request, who, self._context.clock, IntentKind.ALLOW, self._allow_scope)
        if intent.until is not None:
            await self._intents.keep(intent)
            self._applied.apply()
            return f"{self._brake.name} lets everything through{intent.lasting}"
        held, shown = self._reconciler.held()["brake"], request.args.get("shown")
        if not held:
            raise Declined(f"{self._brake.name} holds nothing, so there is nothing to allow")
        if shown is not None and shown != held:
            raise Declined(f"{shown} were shown but {held} are held now: check again (holdfast plan {self._place})")
        if request.args.get("seal", seal := self._reconciler.seal("brake")) != seal:
            raise Declined(f"others than were shown are held now: check again (holdfast plan {self._place})")
        count = self._brake.allow()
        sentence = f"{who.name} let {count:,} held deletes through once: “{intent.why}”"
        record(self._context, self._allow_scope, "allow", sentence)
        self._reconciler.dirty.mark_all()
        return f"{count:,} held deletes go through once"

    async def _revoke(self, _request: Request, who: Who) -> str:
        """Take an allow back: the rest of its time, and what was released once and is not applied yet."""
        if self._brake is None:
            raise Declined(f"{self._place} has no brake")
        name = IntentName(IntentKind.ALLOW, self._allow_scope)
        stored = await self._intents.drop([name], who.name)
        await self._intents.refresh()
        unused = self._brake.revoke()
        if not stored and not unused:
            raise Declined(f"nothing is allowed at {self._brake.name}")
        self._applied.apply()
        sentence = f"{who.name} took the allow of {self._brake.name} back"
        record(self._context, self._allow_scope, "revoke", sentence)
        self._reconciler.dirty.mark_all()
        return f"{self._brake.name} holds mass deletes again"

    async def _forget(self, request: Request, who: Who) -> str:
        name = str(request.args.get("source", ""))
        scope = Scope(ScopeKind.SOURCE, name or "?")
        intent = request_intent(request, who, self._context.clock, IntentKind.FORGET, scope)
        if name not in self._sync.sources:
            known = ", ".join(sorted(self._sync.sources)) or "none"
            raise Declined(f"there is no source {name!r}; there are: {known}")
        await self._intents.keep(intent)
        self._sync.forget(name)
        self._applied.apply()
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
        return f"{self._place} compares everything again"

    def _forgotten(self) -> list[str]:
        return forgotten(self._intents)


def forgotten(intents: IntentStore) -> list[str]:
    """Names of the sources that an operator gave up on."""
    return [one.scope.name for one in intents.all() if one.what is IntentKind.FORGET]


def _forget(source: str) -> IntentName:
    return IntentName(IntentKind.FORGET, Scope(ScopeKind.SOURCE, source))


def record(context: Context, scope: Scope, command: str, sentence: str) -> None:
    """Record a request of an operator in the history."""
    log.info("operator request", details=sentence)
    wall, worker = context.clock.wall(), scope.name or str(scope)
    context.decisions.write([Decision(wall, worker, command, str(scope), "asked", sentence)])
