"""A missing route says something about a backend only while another address passes."""

from __future__ import annotations

from holdfast.balancer.desired.reachability import Reachability
from holdfast.model.base.time import Instant, seconds

NOW = Instant(1_000_000_000_000)
EVERY = seconds(1)


def passing(*addresses: str) -> Reachability:
    found = Reachability()
    for address in addresses:
        found.on_pass(address, NOW, EVERY)
    return found


def test_a_backend_without_a_route_fails_while_another_passes() -> None:
    found = passing("a", "b")
    assert found.is_failing("a", NOW + EVERY)
    assert found.cut_off_since is None


def test_a_pass_is_too_old_once_the_next_one_is_overdue() -> None:
    found = passing("b")
    assert not found.is_failing("a", NOW + seconds(2.1))
    assert found.cut_off_since == NOW + seconds(2.1)


def test_a_pass_at_its_own_address_proves_nothing() -> None:
    assert not passing("a").is_failing("a", NOW)
    assert passing("b", "a").is_failing("a", NOW), "the newest pass is its own, but there is another"


def test_passes_from_before_the_route_was_missing_count_once() -> None:
    found = passing("b")
    assert found.is_failing("a", NOW + seconds(0.5)), "the first result"
    assert not found.is_failing("a", NOW + seconds(1)), "all routes may have gone at once"
    found.on_pass("b", NOW + seconds(1.2), EVERY)
    assert found.is_failing("a", NOW + seconds(1.5))


def test_a_pass_ends_the_time_of_being_cut_off() -> None:
    found = passing()
    assert not found.is_failing("a", NOW)
    assert not found.is_failing("a", NOW + EVERY)
    assert found.cut_off_since == NOW
    found.on_pass("b", NOW + EVERY, EVERY)
    assert found.cut_off_since is None
