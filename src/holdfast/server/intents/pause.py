"""`holdfast pause` and `resume` of a worker of the leader, accepted by any server: stored in etcd, so that the current
leader and every later one apply them.

The leader applies them at once when it is the one that was asked, otherwise at its next read, within seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import structlog

from holdfast.model.base.time import Duration
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.decision_log import Decision, DecisionLog
from holdfast.runtime.intents.file import request_intent
from holdfast.server.intents.store import EtcdIntents
from holdfast.store.api import StoreError

log = structlog.get_logger(__name__)

APPLIED_WITHIN = Duration(seconds=2)
"""Time between two reads of the intents by the leader."""


class PauseCommands:
    """Answers on one server. `apply` puts the intents into effect at once; None on a server that does not lead."""

    def __init__(
        self,
        intents: EtcdIntents,
        clock: Clock,
        decisions: DecisionLog,
        apply: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._intents = intents
        self._name = str(intents.scope)
        self._clock = clock
        self._decisions = decisions
        self._apply = apply

    def handlers(self) -> Mapping[str, Handler]:
        return {"pause": self._pause, "resume": self._resume}

    async def _pause(self, request: Request, who: Who) -> str:
        asked, scope = request_intent(request, who, self._clock), self._intents.scope
        intent = Intent(
            what=IntentKind.PAUSE, scope=scope, who=asked.who, why=asked.why, since=asked.at, until=asked.until
        )
        try:
            await self._intents.put_pause(intent)
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be stored: {error}") from error
        when = await self._applied()
        self._record("pause", f"{asked.who} asked for pause of {self._name}{asked.lasting}: “{asked.why}”")
        return f"{self._name} is paused{asked.lasting}{when}; end it with: holdfast resume {self._name}"

    async def _resume(self, _request: Request, who: Who) -> str:
        try:
            await self._intents.read()
            paused = self._intents.pause is not None
            await self._intents.end_pause(who.name)  # also one that has expired
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be stored: {error}") from error
        if not paused and not self._intents.in_doubt:  # in doubt, another server may remember a pause
            raise Declined(f"{self._name} is not paused")
        when = await self._applied()
        self._record("resume", f"{who.name} asked for resume of {self._name}")
        return f"{self._name} goes on{when}"

    async def _applied(self) -> str:
        """End of the answer: empty if the intents are in effect already."""
        soon = f" on the leader, within {APPLIED_WITHIN.total_seconds():g} s"
        if self._apply is None:
            return soon
        try:
            await self._apply()
        except (Away, StoreError) as error:
            log.debug("intent is stored but not applied yet", error=str(error))
            return soon
        return ""

    def _record(self, what: str, sentence: str) -> None:
        log.info("operator request", details=sentence)
        record = Decision(self._clock.wall(), self._name, what, self._name, "asked", sentence)
        self._decisions.write([record])
