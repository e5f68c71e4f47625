"""The prediction of VPP's table of new flows."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.balancer.dataplane.vpp.flow_table import _moved, predicted, table, xxh64
from holdfast.balancer.vip import backend

ONE, TWO, SIX = backend("10.9.0.1", 80), backend("10.9.0.2", 80), backend("2001:db8::9", 80)


def test_the_hash_is_xxh64() -> None:
    """Test vector of xxHash: eight zero bytes, seed 0."""
    assert xxh64(0, seed=0) == 0x34C96ACDCADB1BBB


@given(st.lists(st.integers(1, 20), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_shares_follow_weights(weights: list[int]) -> None:
    servers = {backend(f"10.9.0.{place}", 80): weight for place, weight in enumerate(weights, 1)}
    shares, total = Counter(table(servers, 1024)), sum(weights)
    for server, weight in servers.items():
        assert abs(shares[server] - 1024 * weight / total) <= weight


def test_nothing_moves_where_nothing_changes() -> None:
    assert predicted({ONE: 100}, {ONE: 100}, 1024).moved == 0
    assert predicted({}, {ONE: 100}, 1024).moved == 0


def test_the_buckets_of_a_server_that_leaves_move() -> None:
    before = {ONE: 100, TWO: 100}
    shares = Counter(table(before, 1024))
    assert predicted(before, {TWO: 100}, 1024).moved == shares[ONE]
    assert predicted(before, {}, 1024).moved == 1024


def test_frontends_of_the_same_servers_cost_one_prediction() -> None:
    before = _moved.cache_info().misses
    moved = set()
    for port in range(1, 101):
        one, two = backend("10.9.1.1", port), backend("10.9.1.2", port)
        moved.add(predicted({one: 100, two: 100}, {one: 99, two: 100}, 1024).moved)
    assert len(moved) == 1
    assert _moved.cache_info().misses == before + 1
