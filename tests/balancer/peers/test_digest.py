"""Digests are equal for equal peers, whatever the order, and show which input differs."""

from __future__ import annotations

from holdfast.balancer.health import HealthState
from holdfast.balancer.peers.digest import Digests, of_health, of_struct, of_table
from holdfast.balancer.vip import BackendEntry, Value, VipKey, VipSettings
from holdfast.testing.fault import fault
from tests.balancer.dataplane.conformance import ONE, TWO, V4

OBJECTS: list[tuple[VipKey, Value]] = [
    (VipKey(V4), VipSettings()),
    (VipKey(V4, ONE), BackendEntry(100)),
    (VipKey(V4, TWO), BackendEntry(0)),
]


def test_a_table_is_the_same_in_every_order_and_with_every_kill() -> None:
    flushed: list[tuple[VipKey, Value]] = [*OBJECTS[:2], (VipKey(V4, TWO), BackendEntry(0, kill=True))]
    assert of_table(OBJECTS) == of_table(list(reversed(OBJECTS))) == of_table(flushed)


def test_a_weight_or_a_setting_makes_another_table() -> None:
    lighter: list[tuple[VipKey, Value]] = [*OBJECTS[:2], (VipKey(V4, TWO), BackendEntry(1))]
    sticky: list[tuple[VipKey, Value]] = [(VipKey(V4), VipSettings(sticky=True)), *OBJECTS[1:]]
    assert len({of_table(OBJECTS), of_table(lighter), of_table(sticky)}) == 3


@fault(
    "B33",
    without="holdfast.balancer.peers.digest:_shape",
    returns=[],
    sees=(AssertionError, r"of_table\(OBJECTS\) != of_table\(larger\)"),
)
def test_B33_another_number_of_buckets_makes_another_table() -> None:
    larger: list[tuple[VipKey, Value]] = [(VipKey(V4), VipSettings(table_size=65537)), *OBJECTS[1:]]
    assert of_table(OBJECTS) != of_table(larger)


def test_the_health_digest_ignores_how_an_operator_holds_a_backend() -> None:
    assert (
        of_health({"a": HealthState.PAUSED})
        == of_health({"a": HealthState.DISABLED})
        != of_health({"a": HealthState.UP})
    )


def test_a_map_is_the_same_in_every_order() -> None:
    assert of_struct({"a": 1, "b": 2}) == of_struct({"b": 2, "a": 1})


def test_peers_with_other_tables_say_which_input_differs() -> None:
    ours = Digests("t", "c", "h", "i")
    assert ours.differing(Digests("t", "other", "h", "i")) == ()
    assert ours.differing(Digests("u", "c", "other", "other")) == ("health", "intents")
    assert ours.differing(Digests("u", "c", "h", "i")) == ("dataplane",)
