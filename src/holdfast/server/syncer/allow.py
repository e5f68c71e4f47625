"""`allow` at the syncer, recorded in the store so that agents need no allow of their own for the same deletes.

`--once` is recorded after the deletes were written, with the store's revision at that time. Agents honour it for
changes up to that revision: what the operator saw, and nothing later. `--for` is recorded before it takes effect, so
that it survives a takeover; the revision that agents honour rises with what is deleted meanwhile.

`allow syncer/witness` releases exactly the keys and revisions that were shown, and never for a time: what nobody has
seen yet may be a live object of another controller.
"""

from __future__ import annotations

from typing import Any

import msgspec
import structlog

from holdfast.model.control.intent import Intent, IntentKind
from holdfast.reconcile import Away
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.intents.commands import record
from holdfast.runtime.intents.etcd import SYNCER
from holdfast.runtime.intents.store import not_stored, request_intent
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.server.syncer.resync import next_pass
from holdfast.server.syncer.term import NAME, SyncerTerm
from holdfast.server.syncer.witness import GATE, seal, unwitnessed
from holdfast.store.api import StoreError
from holdfast.store.identity import ADOPT, read_identity

log = structlog.get_logger(__name__)


class AllowCommands:
    """Answers `allow` for one term; `once` is the handler that releases exactly the held deletes."""

    def __init__(self, term: SyncerTerm, once: Handler) -> None:
        self._term = term
        self._once = once

    async def answer(self, request: Request, who: Who) -> Any:
        asked = request_intent(request, who, self._term.syncer.context.clock, IntentKind.ALLOW, SYNCER)
        if request.args.get("gate") == GATE:
            return self._unwitnessed(asked, request.args.get("seal"))
        if asked.until is not None:
            return await self._for_a_time(asked)
        passes = self._term.reconciler.passes
        answer = await self._once(request, who)
        self._term.start(self._record_after(passes, asked))
        return answer

    def _unwitnessed(self, asked: Intent, shown: object) -> str:
        if asked.until is not None:
            raise Declined(f"{NAME}/{GATE} is never released for a time, only for what was shown: use --once")
        held = unwitnessed(self._term.reconciler.ledger)
        if not held:
            raise Declined(f"{NAME}/{GATE} holds nothing, so there is nothing to allow")
        if shown != seal(held):
            raise Declined(f"others than were shown are held now, or they were written since: holdfast plan {NAME}")
        self._term.witness.allow(held)
        sentence = f"{asked.who} let {len(held):,} unwitnessed deletes through once: “{asked.why}”"
        record(self._term.syncer.context, SYNCER, "allow", sentence)
        self._term.reconciler.dirty.mark([change.key for change in held])
        return f"{len(held):,} unwitnessed deletes go through once, as far as {NAME}/brake allows"

    async def _for_a_time(self, asked: Intent) -> str:
        if self._term.identity_gate.verdict.closed is FleetIdentityReason.STORE_RESTORED:
            raise Declined(f"nothing can be allowed for a time in a restored store; first: {ADOPT}")
        try:
            await record_allow(self._term, asked)
            await self._term.apply_intents()
        except (Away, StoreError) as error:
            raise not_stored(error, "holdfast gate list") from error
        return f"{NAME}/brake lets everything through{asked.lasting}"

    async def _record_after(self, passes: int, asked: Intent) -> None:
        await next_pass(self._term.reconciler, passes)
        try:
            revision = await record_allow(self._term, asked)
        except (Away, StoreError) as error:
            log.warning("allow not recorded in the store; agents may need one of their own", error=str(error))
        else:
            log.info("allow recorded; agents honour it", operator=asked.who, revision=revision)


class RevokeCommands:
    """Answers `revoke` for one term; `brake` is the handler that takes an allow of the brake back."""

    def __init__(self, term: SyncerTerm, brake: Handler) -> None:
        self._term = term
        self._brake = brake

    async def answer(self, request: Request, who: Who) -> Any:
        if request.args.get("gate") != GATE:
            return await self._brake(request, who)
        count = self._term.witness.revoke(self._term.reconciler.is_open)
        if not count:
            raise Declined(f"nothing that is still to be deleted is allowed at {NAME}/{GATE}")
        record(self._term.syncer.context, SYNCER, "revoke", f"{who.name} took the allow of {NAME}/{GATE} back")
        self._term.reconciler.dirty.mark_all()
        return f"{NAME}/{GATE} holds {count:,} unwitnessed deletes again"


async def record_allow(term: SyncerTerm, asked: Intent) -> int:
    """Record in the store that agents may follow everything written so far; returns the revision. Raises `Away`,
    `StoreError` or `Deposed`."""
    syncer = term.syncer
    revision = (await read_identity(syncer.store, syncer.region)).revision
    await term.intents.allow(term.fenced, msgspec.structs.replace(asked, revision=revision))
    return revision
