"""A peer differs when its table has differed for long enough; one that only lags agrees."""

from __future__ import annotations

from holdfast.balancer.peers.agreement import Agreement
from holdfast.balancer.peers.digest import Digests
from holdfast.model.base.time import Instant, seconds

SETTLE = seconds(60)
START = Instant(1_000_000_000_000)


def table(name: str, health: str = "h") -> Digests:
    return Digests(name, "c", health, "i")


def at(second: float) -> Instant:
    return START + seconds(second)


def test_another_table_counts_after_the_time_to_settle() -> None:
    agreement, peers = Agreement(SETTLE), {"other": table("u", "x")}
    assert agreement.differing(table("t"), peers, at(0)) == {}
    assert agreement.differing(table("t"), peers, at(59)) == {}
    assert agreement.differing(table("t"), peers, at(60)) == {"other": ("health",)}


def test_agreement_in_between_starts_the_time_again() -> None:
    agreement, peers = Agreement(SETTLE), {"other": table("u")}
    agreement.differing(table("t"), peers, at(0))
    agreement.differing(table("u"), peers, at(30))
    assert agreement.differing(table("t"), {"other": table("v")}, at(70)) == {}
    assert agreement.differing(table("t"), {"other": table("v")}, at(130)) == {"other": ("dataplane",)}


def test_a_peer_that_follows_every_change_late_agrees() -> None:
    agreement = Agreement(SETTLE)
    for number in range(100):
        late = {"other": table(f"t{number - 1}")}
        assert agreement.differing(table(f"t{number}"), late, at(5 * number)) == {}


def test_a_peer_that_is_gone_and_comes_back_gets_its_time_again() -> None:
    agreement, peers = Agreement(SETTLE), {"other": table("u")}
    agreement.differing(table("t"), peers, at(0))
    agreement.differing(table("t"), {}, at(30))
    assert agreement.differing(table("t"), peers, at(65)) == {}
