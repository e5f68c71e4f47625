"""What the syncer's brake holds, told by network: a third of all endpoints may be the whole of somebody's network."""

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
"""From this share of a network on it is named."""


class HeldCommands:
    """Answers `held` for one reign; `held` tells what there is to tell of any worker."""

    def __init__(self, reign: SyncerTerm, held: Handler) -> None:
        self._reign = reign
        self._held = held

    async def answer(self, request: Request, who: Who) -> Any:
        told = await self._held(request, who)
        going = self._going()
        if going:
            worst = shares(going, await self._wanted())
            for one in told["objects"]:
                if one["gate"] == "brake" and one["kind"] == ENDPOINT.plural:
                    one |= _about(worst)
        return told

    def _going(self) -> Mapping[str, int]:
        """How many held deletes of endpoints there are on each network."""
        reconciler = self._reign.reconciler
        held = (s.change for s in reconciler.ledger if s.closed is not None and s.closed.gate == "brake")
        old = (change.old for change in held if change.op is Op.DELETE and self._is_endpoint(change.key))
        return Counter(network_in(one.value.value) for one in old if one is not None)

    def _is_endpoint(self, key: bytes) -> bool:
        return self._reign.layout.kind(key) is ENDPOINT

    async def _wanted(self) -> Mapping[str, int]:
        try:
            return await self._reign.around.aside(self._reign.around.inventory.networks)
        except Away:
            return {}  # then every network looks as if it went as a whole, and is named


def shares(going: Mapping[str, int], wanted: Mapping[str, int]) -> Mapping[str, float]:
    """The networks of which most would go, each with its share, the worst first. Being on none is no network."""
    found = {name: count / (count + wanted.get(name, 0)) for name, count in going.items() if name}
    return {name: share for name, share in sorted(found.items(), key=lambda one: (-one[1], one[0])) if share >= MOST}


def _about(worst: Mapping[str, float]) -> dict[str, str]:
    if not worst:
        return {"look": "holdfast diff inventory"}
    name, share = next(iter(worst.items()))
    more = f" and most of {len(worst) - 1:,} more" if len(worst) > 1 else ""
    return {"also": f"{share:.0%} of network {name}{more}", "look": f"holdfast diff inventory --network {name}"}
