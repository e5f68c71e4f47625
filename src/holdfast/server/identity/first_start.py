"""Adoption of a store before the first start: an operator accepts what another controller has written there.

It names inventory and store as the first leader would, while nobody leads: the transaction compares that there is no
leader key, as a leader's compares its own (rule 3). The fence is raised to the new epoch and to no term, so that every
leader that follows is above it.
"""

from __future__ import annotations

import uuid

from holdfast.inventory.api import Fence
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.model.control.leader import LEADER
from holdfast.model.control.mark import MARK
from holdfast.reconcile import Away
from holdfast.server.identity.judge import IdentityJudge
from holdfast.server.identity.verdict import FleetIdentityReason, Naming, identity_verdict, next_epoch
from holdfast.store.api import Aspect, Compare, Deposed, Put
from holdfast.store.identity import identity_key, mark_key

_NOBODY = 0
"""Create-revision of a leader key that does not exist."""


class AdoptionRefused(Exception):
    """There is nothing to adopt, or a leader has to do it. The message is one sentence."""


async def check_first_start(judge: IdentityJudge) -> None:
    """Raise `AdoptionRefused` unless nobody leads, and the store has objects and no identity. Raises `Away`."""
    try:
        verdict = identity_verdict(await judge.read(_NOBODY))
    except Deposed as deposed:
        raise AdoptionRefused(
            "a server leads in this store: stop it if it is networking-calico's, or run this on the leader's machine "
            "(holdfast leader)"
        ) from deposed
    if verdict.closed is FleetIdentityReason.STORE_UNNAMED:
        return
    if verdict.naming is not Naming.NOTHING:
        raise AdoptionRefused("nothing to adopt: the store is empty, and the first leader names it")
    why = "inventory and store belong together" if verdict.closed is None else verdict.closed.value
    raise AdoptionRefused(f"nothing to adopt: {why}")


async def adopt_first_start(judge: IdentityJudge, *, who: str, why: str) -> Identity:
    """Name inventory and store. Raises `AdoptionRefused` or `Away`."""
    await check_first_start(judge)
    region, inventory = judge.region, judge.inventory
    sides = await judge.read(_NOBODY)
    fence = Fence(region.segment, next_epoch(sides), _NOBODY)
    await judge.run_in_thread(lambda: inventory.raise_fence(fence))
    await judge.run_in_thread(lambda: inventory.name_fleet(fence, uuid.uuid4().hex))
    mark = await judge.run_in_thread(lambda: inventory.mark(fence, sides.found.mark_number))
    fleet = await judge.run_in_thread(inventory.fleet)
    identity = Identity(fleet or "", fence.epoch, who, why)
    result = await judge.store.txn(
        [
            Compare(LEADER.key(region, "leader"), Aspect.CREATE_REVISION, _NOBODY),
            Compare(identity_key(region), Aspect.MOD_REVISION, sides.found.mod_revision),
        ],
        [Put(identity_key(region), IDENTITY.encode(identity)), Put(mark_key(region), MARK.encode(mark))],
    )
    if not result.succeeded:
        raise Away("store identity", "a leader was elected, or the store was named, meanwhile: see holdfast status")
    return identity
