"""Brake of the agent: deletes that an operator allowed at the syncer pass here too, up to the allowed revision. Pure.

One operator decision must not have to be repeated on five thousand hosts. A delete that followed from a later revision,
or whose revision is unknown, still needs a fresh list or an allowance of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.model.base.time import Instant
from holdfast.reconcile import Brake, BrakeLimits, Change, Closed, Kinds, Op

Allowed = Callable[[Change[ClaimKey, Claim]], bool]


class AgentBrake(Brake[ClaimKey, Claim]):
    def __init__(self, name: str, kinds: Kinds[ClaimKey], limits: BrakeLimits, allowed: Allowed) -> None:
        """`allowed` tells whether an operator has allowed the syncer change that a delete follows from."""
        super().__init__(name, kinds, limits)
        self._is_allowed = allowed

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        closed = super().judge(change, tally, have, now)
        return None if closed is not None and self._is_allowed(change) else closed

    def uses_limit(self, change: Change[ClaimKey, Claim]) -> bool:
        return not self._is_allowed(change)
