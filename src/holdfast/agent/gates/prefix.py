"""Prefix gate: holds routes that the prefix policy refuses (N21). Pure.

The inventory refuses such prefixes, so what arrives here was written into the store by hand or by another program. A
route that is in the kernel or in the journal already is not held because it covers the store or a host: it may be what
the agent reaches the store by, and is repaired and moved like any other. The same holds for a route outside the
fleet's networks, which the leader publishes: until they are known, only the fixed refusals apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.agent.claims import Claim, ClaimKey, ClaimKind
from holdfast.agent.desired.sources import OWN
from holdfast.model.base.time import Instant
from holdfast.model.fleet.prefix_policy import Prefix, PrefixPolicy, PrefixRefusal, forbidden
from holdfast.reconcile import Change, Closed, Op, Reason

_WITH_PREFIX = ClaimKind.ROUTE, ClaimKind.SOURCE


class PrefixReason(Reason):
    PREFIX_REFUSED = "the prefix policy allows no route for it"


@dataclass(slots=True)
class PrefixGate:
    policy: Callable[[], PrefixPolicy]

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.key.kind not in _WITH_PREFIX or change.new is None or change.new.source == OWN:
            return None  # the route to the workloads' gateway is link-local, and the agent's own
        refusal = self.refusal(change)
        if refusal is None:
            return None
        endpoint = change.new.value.owner.endpoint
        owner = f" of endpoint {endpoint}" if endpoint else ""
        detail = f"{change.key.text}{owner}: {refusal.why}"
        return Closed("prefix", PrefixReason.PREFIX_REFUSED, now, refusal.way_out, detail)

    def refusal(self, change: Change[ClaimKey, Claim]) -> PrefixRefusal | None:  # protection: N21
        prefix = Prefix(*change.key.prefix[1:])
        if change.key.kind is ClaimKind.SOURCE and not prefix.length:
            return None  # a workload may be allowed to send from anywhere, such as a router
        if change.op is not Op.CREATE:
            return forbidden(prefix)
        policy = self.policy()
        return policy.refusal(prefix) or self.foreign(change, prefix, policy)

    def foreign(  # protection: N21
        self, change: Change[ClaimKey, Claim], prefix: Prefix, policy: PrefixPolicy
    ) -> PrefixRefusal | None:
        """Refuse a route to an endpoint's prefix outside the fleet's networks. Routes of hosts have no network."""
        is_route = change.key.kind is ClaimKind.ROUTE
        is_of_endpoint = is_route and change.new is not None and bool(change.new.value.owner.endpoint)
        return policy.outside(prefix) if is_of_endpoint else None
