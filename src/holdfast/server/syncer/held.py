"""`held` of the syncer, by network: a small share of all endpoints may be the whole of one network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.reconcile import Away, Op
from holdfast.runtime.control import Handler, Request, Who
from holdfast.server.syncer.resync import network_in
from holdfast.server.syncer.term import SyncerTerm

MOST = 0.9
"""Share of a network's endpoints from which on the network is named."""


class HeldCommands:
    """Answers `held` for one term; `held` is the answer that every worker gives."""

    def __init__(self, term: SyncerTerm, held: Handler) -> None:
        self._term = term
        self._held = held

    async def answer(self, request: Request, who: Who) -> Any:
        answer = await self._held(request, who)
        going = self._going()
        if going:
            worst = shares(going, await self._wanted())
            for one in answer["objects"]:
                if one["gate"] == "brake" and one["kind"] == ENDPOINT.plural:
                    one |= _about(worst)
        return answer

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
