"""Dependents gate: holds a delete while other objects depend on it, and a move onto an object that is not there yet.

The kernel deletes the routes of a nexthop together with the nexthop. So nothing is deleted while a present object
depends on it, even when that dependent is itself held: otherwise a brake on routes would protect nothing. And nothing
moves onto a missing object: a peer that changes its address keeps its routes, which move one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.agent.claims import Claim, ClaimKey, depends_on
from holdfast.agent.present import Present
from holdfast.model.base.time import NEVER, Instant
from holdfast.reconcile import Change, Closed, Op, Reason


class DependentsReason(Reason):
    HAS_DEPENDENTS = "other objects in the kernel still depend on it"
    DEPENDENCY_MISSING = "the object that it will depend on is not in the kernel yet"


@dataclass(slots=True)
class DependentsGate:
    """Builds each refusal once per instant: when a tenth of a fleet goes, thousands wait for the same reason."""

    present: Present
    _refusals: tuple[Instant, dict[int, Closed]] = field(default_factory=lambda: (NEVER, {}))

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        # protection: N9
        if change.op is Op.DELETE:
            count = self.present.dependents(change.key)
            return self._has_dependents(count, now) if count else None
        if change.op is Op.REPLACE and change.new is not None:
            dependency = depends_on(change.key, change.new.value.shape)
            if dependency is not None and dependency not in self.present:
                self.present.wait_for(change.key, dependency)
                opens = f"wait until {dependency} is created"
                return Closed("dependents", DependentsReason.DEPENDENCY_MISSING, now, opens, str(dependency))
        return None

    def _has_dependents(self, count: int, now: Instant) -> Closed:
        if self._refusals[0] != now:
            self._refusals = now, {}
        refusal = self._refusals[1].get(count)
        if refusal is None:
            detail = f"{count:,} object{'s' * (count != 1)} in the kernel"
            refusal = Closed("dependents", DependentsReason.HAS_DEPENDENTS, now, "wait until they are deleted", detail)
            self._refusals[1][count] = refusal
        return refusal
