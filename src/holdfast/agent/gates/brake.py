"""What an operator let through at the syncer passes the agent's brake as well, up to the revision that was looked at.

A mass deletion that somebody has looked at and allowed once is not to be allowed again on five thousand hosts. What
went after that revision is another matter, and so is what cannot be told from it: that waits for its own list or word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.model.base.time import Instant
from holdfast.reconcile import Brake, BrakeLimits, Change, Closed, Kinds, Op, Outcome, Plan

Allowed = Callable[[Change[ClaimKey, Claim]], bool]


class AgentBrake(Brake[ClaimKey, Claim]):
    """`allowed` tells whether an operator has looked at what this change follows from."""

    def __init__(self, name: str, kinds: Kinds[ClaimKey], limits: BrakeLimits, allowed: Allowed) -> None:
        super().__init__(name, kinds, limits)
        self._is_allowed = allowed

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        closed = super().judge(change, tally, have, now)
        return None if closed is not None and self._is_allowed(change) else closed

    def note(self, event: Plan[ClaimKey, Claim] | Outcome[ClaimKey, Claim], now: Instant) -> None:
        # What was allowed does not count against what comes after it.
        if isinstance(event, Plan) or event.change.op is not Op.DELETE or not self._is_allowed(event.change):
            super().note(event, now)
