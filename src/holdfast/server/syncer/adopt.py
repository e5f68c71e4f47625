"""`adopt` at the leader: an operator ends a verdict about store or inventory.

Every step can be repeated, and the verdict ends last, in one transaction: a leader that is killed in between leaves it
standing (C66). A restored store is adopted only after it was refilled, so that agents, which then delete again what the
store lacks, delete nothing that lives (C60). A store is adopted if any daemon reports that it was restored, even if the
leader itself takes it as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from holdfast.inventory.api import Fence
from holdfast.model.control.identity import Identity, LatchedVerdict
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.reconcile import Away, Op
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.etcd import SYNCER, void_allows
from holdfast.runtime.intents.store import request_intent
from holdfast.server.identity.reports import read_restore_reports
from holdfast.server.identity.verdict import FleetIdentityReason, Sides, fence_is_ahead, identity_verdict, next_epoch
from holdfast.server.syncer.allow import record_allow
from holdfast.server.syncer.resync import next_pass
from holdfast.server.syncer.term import NAME, Syncer, SyncerTerm
from holdfast.store.api import Deposed, StoreError
from holdfast.store.identity import ADOPT_INVENTORY, StoreVerdict, replace_identity

log = structlog.get_logger(__name__)

_REFILLED = frozenset({FleetIdentityReason.STORE_RESTORED, FleetIdentityReason.FILLING})
_OF_STORE = _REFILLED | {FleetIdentityReason.STORE_UNNAMED, FleetIdentityReason.BOTH_EMPTY}
_MOST_S = 120.0
"""Longest time that an adoption may take."""
_ROUNDS = 5
"""Most passes in which the store is made to follow the inventory: what still differs then is said."""


async def report_progress(syncer: Syncer) -> dict[str, Any]:
    """Report the last adoption. An adoption ends its term's work, which begins again; so any moment may ask."""
    if not syncer.adoption:
        raise Declined("this server does not lead, or no adoption was requested; holdfast leader shows which one leads")
    return syncer.adoption


class AdoptCommands:
    """Answers `adopt` for one term: starts an adoption, or reports its `progress`, or as a `preview` of a store's
    adoption which daemons report that it was restored."""

    def __init__(self, term: SyncerTerm) -> None:
        self._term = term

    async def answer(self, request: Request, who: Who) -> dict[str, Any]:
        """Answer at once: an adoption takes longer than a command waits for its answer."""
        if request.args.get("progress"):
            return await report_progress(self._term.syncer)
        reports = await self._check_verdict() if request.args.get("side") == "store" else ""
        if request.args.get("preview"):
            return {"reports": reports}
        adoption = self._term.syncer.adoption
        if adoption and not adoption["done"]:
            raise Declined("an adoption is under way: wait until it is done")
        asked = request_intent(request, who, self._term.syncer.context.clock, IntentKind.ALLOW, SYNCER)
        work: Coroutine[Any, Any, str]
        match request.args.get("side"):
            case "store":
                without_refill = bool(request.args.get("without_refill"))
                self._check_store(without_refill=without_refill)
                work = self._adopt_store(asked, without_refill=without_refill)
            case "inventory":
                keep = str(request.args.get("keep"))
                self._check_inventory(keep)
                work = self._adopt_inventory(asked, keep)
            case _:
                raise Declined("adopt needs a side: store or inventory")
        self._set(done=False)
        self._term.start(self._run(work, asked, str(request.args["side"])))
        return self._term.syncer.adoption

    def _set(self, *, done: bool = True, error: str = "", sentence: str = "") -> None:
        self._term.syncer.adoption = {"done": done, "error": error, "sentence": sentence}

    async def _check_verdict(self) -> str:
        """Return the sentence that says which agents and balancers report the store as restored. Declines if neither
        they nor the leader have a verdict that adopting the store ends."""
        closed, syncer = self._term.identity_gate.verdict.closed, self._term.syncer
        if closed is FleetIdentityReason.INVENTORY_RESTORED:
            raise Declined(f"the inventory was restored, too; it comes first: {ADOPT_INVENTORY}")
        if closed not in _OF_STORE and closed is not None:
            raise Declined(f"nothing to adopt: {closed.value}")
        try:
            reports = await read_restore_reports(syncer.store, syncer.region)
        except (Away, StoreError) as error:
            raise Declined(f"no answer now: {error}") from error
        if closed is None and not reports:
            raise Declined(f"nothing to adopt: inventory and store belong together, and {reports.sentence}")
        return reports.sentence

    def _check_store(self, *, without_refill: bool) -> None:  # protection: C60
        term, closed = self._term, self._term.identity_gate.verdict.closed
        if closed in _REFILLED and not term.is_filled and not without_refill:
            raise Declined(self._still_refilled())

    def _still_refilled(self) -> str:
        return (
            f"the store is still being refilled ({self._term.missing:,} objects to go): try again in a moment, or use "
            "--without-refill, after which agents delete what the store lacks"
        )

    def _check_inventory(self, keep: str) -> None:
        if keep not in ("store", "inventory"):
            raise Declined("inventory adopt needs --keep store or --keep inventory")
        closed = self._term.identity_gate.verdict.closed
        if closed is not FleetIdentityReason.INVENTORY_RESTORED:
            raise Declined(f"nothing to adopt: {closed.value if closed else 'inventory and store belong together'}")

    async def _run(self, work: Coroutine[Any, Any, str], asked: Intent, side: str) -> None:
        term = self._term
        term.is_adopting = True
        try:
            async with asyncio.timeout(_MOST_S):
                sentence = await work
        except asyncio.CancelledError:
            self._set(error="the term ended meanwhile: repeat it if holdfast status still asks for it")
            raise
        except TimeoutError:
            self._set(error=f"not done within {_MOST_S:g} s, the verdict stands: see holdfast status, then repeat it")
            return
        except Deposed:
            self._set(error="this server no longer leads: repeat it on the leader")
            raise
        except (Away, StoreError) as error:
            self._set(error=f"not done, the verdict stands: {error}")
            return
        except Declined as declined:
            self._set(error=str(declined))
            return
        finally:
            term.is_adopting = term.identity_gate.adopting = False
        log.info("operator request", details=sentence)
        term.syncer.context.decisions.write([Decision(asked.since, NAME, "adopt", side, "done", sentence)])
        self._set(sentence=sentence)
        term.recheck_identity()

    async def _adopt_store(self, asked: Intent, *, without_refill: bool) -> str:
        """Refill, delete what is witnessed, raise the fence, then end the verdict with a higher epoch. Also where only
        other daemons have noticed that the store was restored."""
        term, syncer = self._term, self._term.syncer
        closed = term.identity_gate.verdict.closed
        if (closed is None or closed in _REFILLED) and not without_refill:
            term.identity_gate.adopting = True
            await self._pass()
            if not term.is_filled:
                raise Declined(self._still_refilled())
        sides = await syncer.read_sides(term.fence.term)
        epoch, fence = next_epoch(sides), await self._fence(sides)
        fleet = sides.fleet or await self._name_inventory(fence)
        mark = await syncer.run_in_thread(lambda: syncer.inventory.mark(fence, sides.found.mark_number))
        identity = Identity(fleet, epoch, asked.who, asked.why, filling=sides.empty)
        await replace_identity(term.fenced, syncer.region, sides.found, identity, mark, [void_allows(syncer.region)])
        return f"{asked.who} adopted the store; fleet {fleet} continues with epoch {epoch}: “{asked.why}”"

    async def _fence(self, sides: Sides) -> Fence:
        """The fence to write to the inventory with. The term's own, as long as it is raised: the workers of this server
        write with it until the term begins again under the new epoch. Otherwise one above all that were."""
        term, syncer = self._term, self._term.syncer
        if term.is_fenced and not fence_is_ahead(sides):
            return term.fence
        fence = term.fence._replace(epoch=next_epoch(sides))
        await syncer.run_in_thread(lambda: syncer.inventory.raise_fence(fence))
        return fence

    async def _name_inventory(self, fence: Fence) -> str:
        syncer = self._term.syncer
        await syncer.run_in_thread(lambda: syncer.inventory.name_fleet(fence, syncer.new_fleet()))
        return await syncer.run_in_thread(syncer.inventory.fleet) or ""

    async def _adopt_inventory(self, asked: Intent, keep: str) -> str:
        """Make one side follow the other, void the old witnesses, then end the verdict with a new mark."""
        term, syncer = self._term, self._term.syncer
        if keep == "inventory":
            term.identity_gate.adopting = True
        await self._pass()
        for _ in range(_ROUNDS):
            if keep == "store" or not term.reconciler.ledger or not term.release_held():
                break
            await self._pass()
        if keep == "inventory":
            await record_allow(term, asked)  # the operator saw these deletes: agents need no second consent
        # With the store kept, a delete that is left has no witness, and after this none: the store keeps its object.
        deletes = sum(one.change.op is Op.DELETE for one in term.reconciler.ledger) if keep == "inventory" else 0
        left = len(term.open_writes()) + deletes
        if left:
            again = "run it again" if keep == "store" else "see holdfast plan syncer"
            raise Declined(f"{left:,} objects still differ, so the verdict stands: {again}")
        sides: Sides = await syncer.read_sides(term.fence.term)
        verdict, identity, fence = identity_verdict(sides), sides.found.identity, await self._fence(sides)
        assert isinstance(identity, Identity)
        await syncer.run_in_thread(lambda: syncer.inventory.void_witnesses(fence, verdict.revision))
        mark = await syncer.run_in_thread(lambda: syncer.inventory.mark(fence, sides.found.mark_number))
        store = LatchedVerdict(StoreVerdict.RESTORED.value, verdict.store) if verdict.store else None
        kept = Identity(identity.fleet, fence.epoch, asked.who, asked.why, identity.filling, store)
        await replace_identity(term.fenced, syncer.region, sides.found, kept, mark)
        return f"{asked.who} adopted the inventory, keeping the {keep}: “{asked.why}”"

    async def _pass(self) -> None:
        """Compare everything once more."""
        reconciler = self._term.reconciler
        passes = reconciler.passes
        reconciler.dirty.mark_all()
        await next_pass(reconciler, passes)
