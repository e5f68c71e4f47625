"""`held` of the syncer: by network, because a small share of all endpoints may be the whole of one network; with the
seal of the unwitnessed deletes, so that an operator allows exactly those that were shown; and with the verdict on
inventory and store and a failure to prune the history, even while nothing is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.reconcile import Away, Change, Op
from holdfast.runtime.control import Handler, Request, Who
from holdfast.server.election.views import FleetVerdict
from holdfast.server.identity.verdict import LATCHED, OPENS, FleetIdentityReason
from holdfast.server.syncer.differences import network_in
from holdfast.server.syncer.term import SyncerTerm
from holdfast.server.syncer.witness import GATE, seal, unwitnessed
from holdfast.store.api import Entry

MOST = 0.9
"""Share of a network's endpoints from which on the network is named."""
_SHOWN = 1_000


class HeldCommands:
    """Answers `held` for one term; `held` is the answer that every worker gives."""

    def __init__(self, term: SyncerTerm, held: Handler) -> None:
        self._term = term
        self._held = held

    async def answer(self, request: Request, who: Who) -> Any:
        answer = await self._held(request, who)
        held = unwitnessed(self._term.reconciler.ledger)
        answer["seals"] = {GATE: seal(held)}
        answer["verdict"] = msgspec.to_builtins(self._verdict())
        answer["pruning_fails"] = self._term.pruning.failing
        if request.args.get("gate") == GATE:
            answer["objects"] = self._described(held[:_SHOWN])
        for one in answer["objects"]:
            if one["gate"] == GATE:
                one |= {"also": f"{len(held):,} in all", "look": "holdfast diff inventory"}
        going = self._going()
        if going:
            worst = shares(going, await self._wanted())
            for one in answer["objects"]:
                if one["gate"] == "brake" and one["kind"] == ENDPOINT.plural:
                    one |= _about(worst)
        return answer

    def _verdict(self) -> FleetVerdict | None:
        verdict = self._term.identity_gate.verdict
        reason = verdict.closed
        if reason is None or reason is FleetIdentityReason.UNKNOWN:
            return None
        ledger, layout = self._term.reconciler.ledger, self._term.layout
        held = [one.change for one in ledger if one.closed is not None and one.closed.reason is reason]
        return FleetVerdict(
            reason.label,
            verdict.sentence if verdict.sentence and reason in LATCHED else _explained(reason, verdict.sentence),
            OPENS[reason],
            Counter(change.op.name.lower() for change in held),
            sorted({layout.kinds.of(change.key) for change in held}),
        )

    def _described(self, changes: Sequence[Change[bytes, Entry]]) -> Any:
        found = (self._term.reconciler.outstanding_for(change.key) for change in changes)
        return msgspec.to_builtins([one for one in found if one is not None])

    def _going(self) -> Mapping[str, int]:
        """Number of held deletes of endpoints by network."""
        reconciler = self._term.reconciler
        held = (s.change for s in reconciler.ledger if s.closed is not None and s.closed.gate == "brake")
        old = (change.old for change in held if change.op is Op.DELETE and self._is_endpoint(change.key))
        return Counter(network_in(one.value.value) for one in old if one is not None)

    def _is_endpoint(self, key: bytes) -> bool:
        return self._term.layout.kind(key) is ENDPOINT

    async def _wanted(self) -> Mapping[str, int]:
        try:
            return await self._term.syncer.run_in_thread(self._term.syncer.inventory.networks)
        except Away:
            return {}  # then every network counts as deleted completely, and is named


def _explained(reason: FleetIdentityReason, details: str) -> str:
    return f"{reason.value} ({details})" if details else reason.value


def shares(going: Mapping[str, int], wanted: Mapping[str, int]) -> Mapping[str, float]:
    """Networks that would lose most of their endpoints, with the share, the worst first. No network is not one."""
    found = {name: count / (count + wanted.get(name, 0)) for name, count in going.items() if name}
    return {name: share for name, share in sorted(found.items(), key=lambda one: (-one[1], one[0])) if share >= MOST}


def _about(worst: Mapping[str, float]) -> dict[str, str]:
    if not worst:
        return {"look": "holdfast diff inventory"}
    name, share = next(iter(worst.items()))
    more = f" and most of {len(worst) - 1:,} more" if len(worst) > 1 else ""
    return {"also": f"{share:.0%} of network {name}{more}", "look": f"holdfast diff inventory --network {name}"}
