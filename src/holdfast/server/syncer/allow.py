"""`allow` at the syncer, recorded in the store so that agents need no allowance of their own for the same deletes.

`--once` is recorded after the deletes were written, with the store's revision at that time. Agents honour it for
changes up to that revision: what the operator saw, and nothing later. `--for` is recorded before it takes effect, so
that it survives a takeover; the revision that agents honour rises with what is deleted meanwhile.
"""

from __future__ import annotations

from typing import Any

import structlog

from holdfast.model.control.allowance import Allowance
from holdfast.reconcile import Away
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.file import WorkerIntent, request_intent
from holdfast.server.intents.store import BRAKE
from holdfast.server.syncer.resync import next_pass
from holdfast.server.syncer.term import NAME, SyncerTerm
from holdfast.store.api import StoreError
from holdfast.store.identity import read_identity

log = structlog.get_logger(__name__)


class AllowCommands:
    """Answers `allow` for one term; `once` is the handler that releases exactly the held deletes."""

    def __init__(self, term: SyncerTerm, once: Handler) -> None:
        self._term = term
        self._once = once

    async def answer(self, request: Request, who: Who) -> Any:
        asked = request_intent(request, who, self._term.syncer.context.clock)
        if asked.until is not None:
            return await self._for_a_time(asked)
        passes = self._term.reconciler.passes
        answer = await self._once(request, who)
        self._term.start(self._record_after(passes, asked))
        return answer

    async def _for_a_time(self, asked: WorkerIntent) -> str:
        try:
            await self._record(asked)
            await self._term.apply_intents()
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be stored: {error}") from error
        sentence = f"{asked.who} lets everything through {NAME}/brake{asked.lasting}: “{asked.why}”"
        log.info("operator request", details=sentence)
        self._term.syncer.context.decisions.write([Decision(asked.at, NAME, "allow", NAME, "asked", sentence)])
        self._term.reconciler.dirty.mark_all()
        return f"{NAME}/brake lets everything through{asked.lasting}"

    async def _record_after(self, passes: int, asked: WorkerIntent) -> None:
        await next_pass(self._term.reconciler, passes)
        try:
            revision = await self._record(asked)
        except (Away, StoreError) as error:
            log.warning("allowance not recorded in the store; agents may need one of their own", error=str(error))
        else:
            log.info("allowance recorded; agents honour it", operator=asked.who, revision=revision)

    async def _record(self, asked: WorkerIntent) -> int:
        syncer = self._term.syncer
        revision = (await read_identity(syncer.store, syncer.region)).revision
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
        await self._term.intents.allow(self._term.fenced, allowance)
        return revision
