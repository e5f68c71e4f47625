"""An operator's `allow` at the syncer, recorded in the store: agents need not be asked for the same deletes again.

`--once` is recorded after the deletes were written, with the store's revision at that moment. Agents honour it for
changes up to that revision: what the operator saw, and nothing that came later. `--for` is recorded before it takes
effect, so that it follows a takeover; the revision that agents honour rises with what is deleted meanwhile.
"""

from __future__ import annotations

from typing import Any

import structlog

from holdfast.model.control.allowance import Allowance
from holdfast.reconcile import Away
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.book import WorkerIntent, request_intent
from holdfast.server.intents.store import BRAKE
from holdfast.server.syncer.resync import next_pass
from holdfast.server.syncer.term import NAME, SyncerTerm
from holdfast.store.api import StoreError
from holdfast.store.identity import read_identity

log = structlog.get_logger(__name__)


class AllowCommands:
    """Answers `allow` for one reign; `once` is what lets exactly the held deletes through."""

    def __init__(self, reign: SyncerTerm, once: Handler) -> None:
        self._reign = reign
        self._once = once

    async def answer(self, request: Request, who: Who) -> Any:
        asked = request_intent(request, who, self._reign.around.clock)
        if asked.until is not None:
            return await self._for_a_time(asked)
        passes = self._reign.reconciler.passes
        said = await self._once(request, who)
        self._reign.start(self._record_after(passes, asked))
        return said

    async def _for_a_time(self, asked: WorkerIntent) -> str:
        try:
            await self._record(asked)
            await self._reign.hear()
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be kept: {error}") from error
        sentence = f"{asked.who} lets everything through {NAME}/brake{asked.lasting}: “{asked.why}”"
        log.info(sentence)
        self._reign.around.decisions.write([Decision(asked.at, NAME, "allow", NAME, "asked", sentence)])
        self._reign.reconciler.dirty.mark_all()
        return f"{NAME}/brake lets everything through{asked.lasting}"

    async def _record_after(self, passes: int, asked: WorkerIntent) -> None:
        await next_pass(self._reign.reconciler, passes)
        try:
            revision = await self._record(asked)
        except (Away, StoreError) as error:
            log.warning(f"the allowance could not be recorded in the store, so agents may ask for it again: {error}")
        else:
            log.info(f"what {asked.who} allowed is recorded: agents honour it up to revision {revision}")

    async def _record(self, asked: WorkerIntent) -> int:
        around = self._reign.around
        revision = (await read_identity(around.store, around.region)).revision
        allowance = Allowance(
            gate=BRAKE.gate,
            scope=BRAKE.scope,
            revision=revision,
            who=asked.who,
            why=asked.why,
            since=asked.at,
            once=asked.until is None,
            until=asked.until,
        )
        await self._reign.words.allow(self._reign.fenced, allowance)
        return revision
