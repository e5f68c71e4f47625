"""The agent without one of its protections, for the second run of `@fault` tests and for the seeds."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agent.claims import ClaimKey
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.desired.ownership import ClaimOwners
from holdfast.agent.target import ClaimOutcome
from holdfast.reconcile import Op


async def as_planned(_self: object, batch: Sequence[ClaimChange]) -> list[ClaimChange]:
    """Checks liveness once, for the whole list."""
    return list(batch)


def tried_once(outcome: ClaimOutcome) -> bool:
    """A delete is over when it was tried."""
    return outcome.change.op is Op.DELETE


def with_all_its_claims(self: ClaimOwners, key: ClaimKey, by: bytes) -> None:
    """Deletes the claims of a dead owner, whoever claims them now."""
    self.sole.pop(key, None)
    self.shared.pop(key, {}).pop(by, None)


def nothing_restored(_self: object, _claims: object) -> set[ClaimKey]:
    """Ignores what earlier runs programmed."""
    return set()
