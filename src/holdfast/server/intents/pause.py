"""`holdfast pause` and `resume` of a worker of the leader, at any server: kept in the store, so that whoever leads, and
leads next, obeys.

The leader obeys at once when it is the one that was told, otherwise when it looks next, within seconds.
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
from holdfast.runtime.intents.book import request_intent
from holdfast.server.intents.store import EtcdIntents
from holdfast.store.api import StoreError

log = structlog.get_logger(__name__)

HEARD_WITHIN = Duration(seconds=2)
"""How often whoever leads looks what was said."""


class PauseCommands:
    """Answers on one server; `hear` is set while it leads: what was said takes effect at once then."""

    def __init__(self, words: EtcdIntents, clock: Clock, decisions: DecisionLog) -> None:
        self._words = words
        self._name = str(words.scope)
        self._clock = clock
        self._decisions = decisions
        self.hear: Callable[[], Awaitable[None]] | None = None

    def handlers(self) -> Mapping[str, Handler]:
        return {"pause": self._pause, "resume": self._resume}

    async def _pause(self, request: Request, who: Who) -> str:
        asked, scope = request_intent(request, who, self._clock), self._words.scope
        intent = Intent(
            what=IntentKind.PAUSE, scope=scope, who=asked.who, why=asked.why, since=asked.at, until=asked.until
        )
        try:
            await self._words.ask_for(intent)
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be kept: {error}") from error
        heard = await self._heard()
        self._tell("pause", f"{asked.who} asked for pause of {self._name}{asked.lasting}: “{asked.why}”")
        return f"{self._name} is paused{asked.lasting}{heard}; end it with: holdfast resume {self._name}"

    async def _resume(self, _request: Request, who: Who) -> str:
        try:
            await self._words.read()
            paused = self._words.pause is not None
            await self._words.take_back()  # also one that has run out
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be kept: {error}") from error
        if not paused:
            raise Declined(f"{self._name} is not paused")
        heard = await self._heard()
        self._tell("resume", f"{who.name} asked for resume of {self._name}")
        return f"{self._name} goes on{heard}"

    async def _heard(self) -> str:
        """How the sentence goes on: whether it is in force already."""
        soon = f" on whoever leads, within {HEARD_WITHIN.total_seconds():g} s"
        if self.hear is None:
            return soon
        try:
            await self.hear()
        except (Away, StoreError) as error:
            log.debug(f"it is kept, and will be heard of: {error}")
            return soon
        return ""

    def _tell(self, what: str, sentence: str) -> None:
        log.info(sentence)
        record = Decision(self._clock.wall(), self._name, what, self._name, "asked", sentence)
        self._decisions.write([record])
