"""What stands in for a protection that a `@fault` test takes away."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config.pulse import Pulse as Bounds
from holdfast.model.time import Instant
from holdfast.runtime.pulse import Signs, Verdict
from holdfast.store.api import Compare, Operation, TxnResult
from holdfast.store.endpoints import Endpoints
from holdfast.store.fenced import FencedStore


async def write_without_fence(
    self: FencedStore, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
) -> TxnResult:
    return await self.store.txn(compares, then, otherwise)


def only_exits_count(signs: Signs, bounds: Bounds, now: Instant) -> Verdict:
    """A supervisor that waits for its children and looks at nothing else."""
    return Verdict.HEALTHY if signs.exit is None else Verdict.DEAD


def always_the_first_member(self: Endpoints, now: Instant) -> list[str]:
    return [self.urls[0]]
