"""Pools: which backends of a frontend serve, with which weight, and whose flows are killed.

A pure function of states and weights; its truth table is its test. The first pool with an up backend of weight above
zero serves (B8); an up backend in any other pool is on standby with weight zero. With a panic threshold a pool must
have that share of its weight healthy; when none has, the first pool serves with all backends that no operator holds:
when nearly everything looks dead, the prober is more likely at fault than the backends (B14). With a fail-back delay
`fail_back` chooses among the pools that can serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.balancer.health import HealthState

_HELD_BY_OPERATOR = (HealthState.PAUSED, HealthState.DISABLED)


@dataclass(frozen=True, slots=True)
class PoolCandidate:
    """One backend in one pool of a frontend."""

    backend: str
    weight: int
    """Configured weight, or the one that an operator set."""
    state: HealthState
    ramped: int | None = None
    """Weight reduced by slow start; None for the full weight."""
    settled: bool = True
    """True once it has been in its state for one probe interval; a flush on down waits that long."""
    newcomer: bool = False
    """True until its first result; until then it neither counts for the panic threshold nor serves in a panic."""
    base: int = 0
    """Weight in the base table, if its pool is active; 0 before it has joined."""


@dataclass(frozen=True, slots=True)
class Share:
    """Result for one backend: its weight among new flows, and whether its established flows are killed."""

    weight: int
    kill: bool = False
    base: int = -1
    """Weight in the base table; at least `weight`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", max(self.base, self.weight))


@dataclass(frozen=True, slots=True)
class Serving:
    """Result for a frontend: one share per backend, in the order of the pools."""

    shares: dict[str, Share]
    active: int | None
    """Index of the pool that serves; None when none does."""
    panic: bool
    state: HealthState
    """UP, DOWN or UNKNOWN."""


def able(pools: Sequence[Sequence[PoolCandidate]], panic_below: float = 0.0) -> list[bool | None]:
    """Tell of each pool whether it can serve. None if it cannot, and that does not follow from its health: a backend is
    unknown, or an operator took out the healthy ones. `panic_below` is the panic threshold, a share from 0 (off) to 1.
    """
    return [_is_able(pool, panic_below) for pool in pools]


def first(able: Sequence[bool | None]) -> int | None:
    """Choose the first pool that can serve."""
    return next((index for index, can in enumerate(able) if can), None)


def serving(
    pools: Sequence[Sequence[PoolCandidate]],
    active: int | None,
    *,
    flush_on_down: bool = True,
    panic_below: float = 0.0,
) -> Serving:
    """Compute the share of every backend. `active` is the pool that serves; None if none can."""
    panic = active is None and panic_below > 0 and any(_can_panic(member) for pool in pools[:1] for member in pool)
    shares: dict[str, Share] = {}
    for index, pool in enumerate(pools):
        for member in pool:
            base = member.base if index == (active or 0) else 0  # without an active pool, the first is the base
            if panic and index == 0 and _can_panic(member):
                shares[member.backend] = Share(_weight(member), base=max(base, member.weight))
            else:
                kill = _kills(member, flush_on_down=flush_on_down and not panic)
                weight = _weight(member) if _serves(member, index == active) else 0
                shares[member.backend] = Share(weight, kill, base)
    return Serving(shares, 0 if panic else active, panic, _state(pools, shares))


def _is_able(pool: Sequence[PoolCandidate], panic_below: float) -> bool | None:
    if _is_fit(pool, panic_below):
        return True
    states = {member.state for member in pool}
    return False if HealthState.DOWN in states and HealthState.UNKNOWN not in states else None


def _is_fit(pool: Sequence[PoolCandidate], panic_below: float) -> bool:
    """Tell whether a pool can serve: an up backend of weight zero is not enough (protection: B8)."""
    up = sum(member.weight for member in pool if member.state is HealthState.UP)
    of = sum(member.weight for member in pool if _counts(member))
    return up > 0 and up >= panic_below * of


def _counts(member: PoolCandidate) -> bool:
    """Tell whether a backend counts for the panic threshold: scaling out is no panic (protection: B30)."""
    return member.state not in _HELD_BY_OPERATOR and not member.newcomer


def _serves(member: PoolCandidate, in_active_pool: bool) -> bool:
    return in_active_pool and member.state is HealthState.UP


def _can_panic(member: PoolCandidate) -> bool:
    # protection: B14
    return member.weight > 0 and _counts(member) and member.state is not HealthState.REMOVED


def _weight(member: PoolCandidate) -> int:
    return member.weight if member.ramped is None else member.ramped


def _kills(member: PoolCandidate, *, flush_on_down: bool) -> bool:
    if member.state is HealthState.DISABLED:
        return True
    return member.state is HealthState.DOWN and flush_on_down and member.settled


def _state(pools: Sequence[Sequence[PoolCandidate]], shares: dict[str, Share]) -> HealthState:
    if any(share.weight for share in shares.values()):
        return HealthState.UP
    known = any(member.state is not HealthState.UNKNOWN for pool in pools for member in pool)
    return HealthState.DOWN if known else HealthState.UNKNOWN
