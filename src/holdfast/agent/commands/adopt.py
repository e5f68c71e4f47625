"""Command `adopt` of a running agent: accept a restored store as it is, for this host alone.

The preview is what the identity gate holds: what would be deleted and replaced once the store is accepted. Every other
gate, the brake above all, still judges these changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from holdfast.agent import PEERS_WORKER
from holdfast.agent.gates.identity import NotAdoptable
from holdfast.agent.reconciler import NAME, AgentReconciler
from holdfast.reconcile import Away, Op
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.decision_log import Decision, DecisionLog
from holdfast.store.api import StoreError

log = structlog.get_logger(__name__)

SHOWN = 20
"""Changes that a preview names."""


class AdoptionPreview(msgspec.Struct, frozen=True):
    """Changes that wait for the store to be accepted, with the first of them. `seal` identifies exactly these."""

    stores: list[str]
    """Sentences of the verdicts."""
    deletes: int
    replaces: int
    first: list[tuple[str, str]]
    """Operation and object."""
    seal: str


class AdoptCommand:
    def __init__(self, reconciler: AgentReconciler, clock: Clock, decisions: DecisionLog) -> None:
        self._reconciler = reconciler
        self._clock = clock
        self._decisions = decisions

    def handlers(self) -> Mapping[str, Handler]:
        return {"adopt": self._adopt}

    def preview(self) -> AdoptionPreview:
        loop = self._reconciler.loop
        held = [one.change for one in loop.ledger if one.closed is not None and one.closed.gate == "identity"]
        counts = Counter(change.op for change in held)
        first = sorted([one for one in held if one.op is not Op.CREATE], key=lambda one: (one.op, one.key))[:SHOWN]
        return AdoptionPreview(
            stores=self._reconciler.identity_gate.sentences(),
            deletes=counts[Op.DELETE],
            replaces=counts[Op.REPLACE],
            first=[(change.op.name.lower(), str(change.key)) for change in first],
            seal=loop.seal("identity"),
        )

    async def _adopt(self, request: Request, who: Who) -> Any:
        """Return the preview; without `dry_run` also accept the store, if exactly what was shown is still held."""
        preview = self.preview()
        if request.args.get("dry_run"):
            return msgspec.to_builtins(preview)
        why = str(request.args.get("reason", "")).strip()
        if not why:
            raise Declined("give a reason: holdfast agent adopt --reason WHY")
        if request.args.get("seal", preview.seal) != preview.seal:
            raise Declined("others than were shown are held now: check again (holdfast agent adopt --dry-run)")
        try:
            await self._reconciler.identity_gate.adopt(self._clock.now())
        except NotAdoptable as error:
            raise Declined(str(error)) from error
        except (Away, StoreError) as error:
            raise Declined(f"the store cannot be read, so it is not accepted: {error}") from error
        self._record(preview, who, why)
        self._reconciler.loop.dirty.mark_all()
        return msgspec.to_builtins(preview)

    def _record(self, preview: AdoptionPreview, who: Who, why: str) -> None:
        sentence = (
            f"{who.name} accepted the restored store for this host: “{why}”; "
            f"{preview.deletes:,} deletes and {preview.replaces:,} replaces were held"
        )
        log.warning(
            "restored store accepted for this host",
            who=who.name,
            why=why,
            deletes=preview.deletes,
            replaces=preview.replaces,
        )
        self._decisions.write([Decision(self._clock.wall(), PEERS_WORKER, "adopt", NAME, "asked", sentence)])
