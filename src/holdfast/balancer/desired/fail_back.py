"""Fail-back: which pool of a frontend serves, when an earlier one has failed and recovered.

The pool that serves goes on serving while it can. An earlier one takes over again once it has been able to serve for
the fail-back delay without a break; one that has never failed takes over at once, so that the order in which backends
are first probed does not matter, and so does one that only an operator took out. When the serving pool fails, the
first one that can serve does, if possible one that has not just recovered. After a restart the pool that the dataplane
was found serving with counts as the one that serves until the health of its backends is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.model.base.time import NEVER, Duration, Instant


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """Memory of one frontend; pools by their index."""

    serving: int | None = None
    """The pool that served last; None while none can."""
    is_adopted: bool = False
    """True while `serving` is what the dataplane was found with, and its backends have not been probed."""
    failed: frozenset[int] = frozenset()
    """Pools that could not serve at some time: they wait when they recover."""
    able_since: Mapping[int, Instant] = field(default_factory=dict)
    """Since when each pool that can serve has been able to; `NEVER` for one that has never failed."""


def adopted(serving: int) -> PoolMemory:
    """Memory after a start: the dataplane was serving with this pool, so the ones before it had failed."""
    return PoolMemory(serving, is_adopted=True, failed=frozenset(range(serving)))


def step(
    memory: PoolMemory, able: Sequence[bool | None], delay: Duration, now: Instant
) -> tuple[int | None, PoolMemory, Instant | None]:
    """Choose the pool that serves. `able` tells of each pool whether it can; None if it cannot and has not failed.

    Returns the pool, the new memory, and when the choice changes by itself.
    """
    failed = memory.failed.union(pool for pool, can in enumerate(able) if can is False)
    since = {
        pool: memory.able_since.get(pool, now if pool in failed else NEVER) for pool, can in enumerate(able) if can
    }
    ends = {pool: at + delay for pool, at in since.items() if at and now - at < delay}
    serving = memory.serving
    ready = [pool for pool in since if pool not in ends and (serving not in since or pool < serving)]
    chosen = next(iter(ready), serving if serving in since else next(iter(since), None))
    is_adopted = memory.is_adopted and serving is not None and serving < len(able) and able[serving] is None
    after = PoolMemory(serving if is_adopted else chosen, is_adopted, failed, since)
    return chosen, after, min(ends.values(), default=None)
