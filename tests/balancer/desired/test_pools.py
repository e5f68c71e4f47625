"""The truth table of effective weights, and the pool that serves."""

from __future__ import annotations

import pytest

from holdfast.balancer.desired import pools as deciding
from holdfast.balancer.desired.pools import PoolCandidate, Serving, Share
from holdfast.balancer.health import HealthState
from holdfast.testing.fault import fault

S = HealthState


def serving(pools: list[list[PoolCandidate]], *, flush_on_down: bool = True, panic_below: float = 0.0) -> Serving:
    """With the first pool that can serve."""
    active = deciding.first(deciding.able(pools, panic_below))
    return deciding.serving(pools, active, flush_on_down=flush_on_down, panic_below=panic_below)


def one(state: HealthState, *, standby: bool, flush_on_down: bool = True, ramped: int | None = None) -> Share:
    """The share of one backend beside another that makes its pool, or the one before it, serve."""
    anchor = PoolCandidate("anchor", 100, HealthState.UP)
    member = PoolCandidate("it", 40, state, ramped)
    pools = [[anchor], [member]] if standby else [[anchor, member]]
    return serving(pools, flush_on_down=flush_on_down).shares["it"]


@pytest.mark.parametrize(
    ("state", "active", "standby"),
    [
        (S.UP, Share(40), Share(0)),
        (S.UNKNOWN, Share(0), Share(0)),
        (S.PAUSED, Share(0), Share(0)),
        (S.DOWN, Share(0, kill=True), Share(0, kill=True)),
        (S.DISABLED, Share(0, kill=True), Share(0, kill=True)),
    ],
)
def test_the_truth_table(state: HealthState, active: Share, standby: Share) -> None:
    assert one(state, standby=False) == active
    assert one(state, standby=True) == standby


def test_down_without_flush_keeps_the_flows_but_disabled_never_does() -> None:
    assert one(S.DOWN, standby=False, flush_on_down=False) == Share(0)
    assert one(S.DISABLED, standby=False, flush_on_down=False) == Share(0, kill=True)


def test_slow_start_reduces_the_weight() -> None:
    assert one(S.UP, standby=False, ramped=4) == Share(4)


def test_a_flush_on_down_waits_until_the_backend_has_been_down_for_an_interval() -> None:
    fresh = PoolCandidate("it", 40, S.DOWN, settled=False)
    assert serving([[PoolCandidate("anchor", 100, S.UP), fresh]]).shares["it"] == Share(0)


def pools(*rows: str, weight: int = 100) -> list[list[PoolCandidate]]:
    """Each row is a pool: u up, d down, ? unknown, p paused, x disabled."""
    words = {"u": S.UP, "d": S.DOWN, "?": S.UNKNOWN, "p": S.PAUSED, "x": S.DISABLED}
    return [[PoolCandidate(f"{p}{i}", weight, words[c]) for i, c in enumerate(row)] for p, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "active", "state"),
    [
        (("uu", "u"), 0, S.UP),
        (("du", "u"), 0, S.UP),
        (("dd", "u"), 1, S.UP),
        (("dd", "d"), None, S.DOWN),
        (("??", "?"), None, S.UNKNOWN),
        (("?p", "?"), None, S.DOWN),
        (("pp", "u"), 1, S.UP),
        ((), None, S.UNKNOWN),
    ],
)
def test_the_first_pool_with_an_up_backend_serves(
    rows: tuple[str, ...], active: int | None, state: HealthState
) -> None:
    found = serving(pools(*rows))
    assert (found.active, found.state) == (active, state)


@pytest.mark.parametrize(
    ("row", "found"),
    [("ud", True), ("dd", False), ("d?", None), ("??", None), ("dp", False), ("pp", None), ("px", None), ("", None)],
)
def test_a_pool_has_failed_only_if_its_health_says_so(row: str, found: bool | None) -> None:
    assert deciding.able(pools(row)) == [found]
    drained = pools(row, weight=0)
    assert deciding.able(drained) == [None if "d" not in row or "?" in row else False]


def any_up(pool: list[PoolCandidate], panic_below: float) -> bool:
    return any(member.state is S.UP for member in pool)


@fault(
    "B8",
    without="holdfast.balancer.desired.pools:_is_fit",
    by="tests.balancer.desired.test_pools:any_up",
    sees=(AssertionError, "found.active == 1"),
)
def test_B8_an_up_backend_of_weight_zero_does_not_keep_a_dead_pool_active() -> None:
    found = serving(
        [[PoolCandidate("drained", 0, S.UP), PoolCandidate("dead", 100, S.DOWN)], [PoolCandidate("spare", 100, S.UP)]]
    )
    assert found.active == 1
    assert found.shares["spare"] == Share(100)


@pytest.mark.parametrize(
    ("rows", "active", "panic"),
    [
        (("uu", "u"), 0, False),
        (("ud", "u"), 0, False),
        (("udd", "uu"), 1, False),
        (("udd", "udd"), 0, True),
        (("ddd", "ddd"), 0, True),
        (("upp", "uu"), 0, False),
        (("ppp", "ddd"), None, False),
    ],
)
def test_a_pool_needs_the_share_of_the_panic_threshold(rows: tuple[str, ...], active: int | None, panic: bool) -> None:
    found = serving(pools(*rows), panic_below=0.5)
    assert (found.active, found.panic) == (active, panic)


def test_in_panic_the_first_pool_serves_with_all_that_no_operator_holds() -> None:
    found = serving(pools("ud?px", "d"), panic_below=0.5)
    weights = {name: share.weight for name, share in found.shares.items()}
    assert weights == {"00": 100, "01": 100, "02": 100, "03": 0, "04": 0, "10": 0}


def never(member: PoolCandidate) -> bool:
    return False


@fault(
    "B14",
    without="holdfast.balancer.desired.pools:_can_panic",
    by="tests.balancer.desired.test_pools:never",
    sees=(AssertionError, "found.state is S.UP"),
)
def test_B14_when_everything_looks_dead_the_panic_threshold_keeps_serving_and_kills_no_flow() -> None:
    found = serving(pools("dddd"), panic_below=0.5)
    assert found.state is S.UP
    assert set(found.shares.values()) == {Share(100, kill=False)}
