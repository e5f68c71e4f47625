"""`holdfast pause syncer` and `resume`, at any server: kept in the store, so that whoever leads, and leads next, obeys.

The leader obeys at once when it is the one that was told, otherwise when it looks next, within seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from holdfast.model.intent import Intent, What
from holdfast.reconcile import Away
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.decisions import Decision
from holdfast.runtime.wishes import wish
from holdfast.server.syncer import LOOK_EVERY, NAME, Reign, Surroundings
from holdfast.server.syncer_words import SYNCER, Words
from holdfast.store.api import StoreError

log = structlog.get_logger(__name__)


class Pausing:
    """Answers on one server; `reign` is set while it leads."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._words = Words(around.store, around.region, around.clock)
        self.reign: Reign | None = None

    def handlers(self) -> Mapping[str, Handler]:
        return {"pause": self._pause, "resume": self._resume}

    async def _pause(self, request: Request, who: Who) -> str:
        asked = wish(request, who, self._around.clock)
        intent = Intent(what=What.PAUSE, scope=SYNCER, who=asked.who, why=asked.why, since=asked.at, until=asked.until)
        try:
            await self._words.ask_for(intent)
            heard = await self._heard()
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be kept: {error}") from error
        self._tell("pause", f"{asked.who} asked for pause of {NAME}{asked.lasting}: “{asked.why}”")
        return f"{NAME} is paused{asked.lasting}{heard}; end it with: holdfast resume {NAME}"

    async def _resume(self, _request: Request, who: Who) -> str:
        try:
            if not await self._words.take_back():
                raise Declined(f"{NAME} is not paused")
            heard = await self._heard()
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be kept: {error}") from error
        self._tell("resume", f"{who.name} asked for resume of {NAME}")
        return f"{NAME} goes on{heard}"

    async def _heard(self) -> str:
        """How the sentence goes on: whether it is in force already."""
        if self.reign is None:
            return f" on whoever leads, within {LOOK_EVERY.total_seconds():g} s"
        await self.reign.hear()
        return ""

    def _tell(self, what: str, sentence: str) -> None:
        log.info(sentence)
        record = Decision(self._around.clock.wall(), NAME, what, NAME, "asked", sentence)
        self._around.decisions.write([record])
