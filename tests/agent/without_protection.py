"""The agent without one of its protections, for the second run of `@fault` tests and for the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.agent.claims import ClaimKey
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.desired.ownership import Claimant, ClaimOwners, Seniority
from holdfast.agent.target import ClaimOutcome
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER
from holdfast.reconcile import Op
from holdfast.runtime.store_guard import StoreGuard, StoreReading
from holdfast.store.api import Compacted, Store
from holdfast.store.identity import Judgement, SeenStore, StoreIdentity, read_identity, remember


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


def local_while_it_migrates(places: Sequence[Claimant]) -> Claimant | None:
    """Programs a workload beside another place of it only while its migration exists."""
    return next((one for one in places if one.is_here and one.is_migrating), None)


def newest_wins(self: Seniority, *, restored: bool) -> int:
    """Gives a claim to the object that was written last."""
    return self.written


def oldest_wins(self: Seniority, *, restored: bool) -> int:
    """Keeps a claim with the oldest object, also where a backup has brought it back."""
    return -self.created


def any_value(_self: object, _change: object, _source: str, unreadable: Sequence[str]) -> Sequence[str]:
    """Takes every object of a source for the possible state of an unreadable value."""
    return unreadable


def nothing_restored(_self: object, _claims: object) -> set[ClaimKey]:
    """Ignores what earlier runs programmed."""
    return set()


def remembers_no_verdict(
    remembered: SeenStore | None, found: StoreIdentity, judgement: Judgement, *, relisted: bool
) -> SeenStore | None:
    """Compares numbers only, and forgets what they said before."""
    del relisted
    if judgement.is_ours:
        return remember(found) if remembered is None else remembered.seen(found)
    return remembered


async def asks_before_recalling(guard: StoreGuard) -> StoreReading:
    """Recalls the memory after the store has answered."""
    found = await read_identity(guard.store, guard.region)
    return StoreReading(guard.memory.load(), found, diverged=False)


async def takes_compacted_for_another_history(store: Store, region: Region, remembered: SeenStore) -> bool:
    """Treats a history that is gone as one that differs."""
    try:
        leader = await store.get(LEADER.key(region, "leader"), revision=remembered.trace)
    except Compacted:
        return True
    return leader is None or leader.mod_revision != remembered.trace


def whatever_the_state(found: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Report endpoints that are down to a store that is being refilled, too."""
    return found
