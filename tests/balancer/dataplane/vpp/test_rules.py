"""What VPP cannot do, and what would crash it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer.dataplane.vpp import rules
from holdfast.balancer.vip import BackendEntry, Objects, Value, Vip, VipKey, VipSettings, backend

V4, V6 = Vip.of("192.0.2.1", "tcp", 80), Vip.of("2001:db8::1", "tcp", 80)
GRE = VipSettings(table_size=1024, algorithm=0, encapsulation="gre")


def objects(*entries: BackendEntry) -> Objects:
    servers = {VipKey(V4, backend(f"10.0.0.{place}", 0)): entry for place, entry in enumerate(entries, 1)}
    return [(VipKey(V4), VipSettings(table_size=16381, encapsulation="gre")), *servers.items()]


def canonical(wanted: Objects, length: int) -> dict[VipKey, Value]:
    return dict(rules.canonical(wanted, length))


def test_a_server_has_the_port_of_its_vip_and_no_base() -> None:
    found = canonical(objects(BackendEntry(50, base=100)), 1024)
    assert found == {VipKey(V4): GRE, VipKey(V4, backend("10.0.0.1", 80)): BackendEntry(50)}


def test_weights_that_fit_stay_as_they_are() -> None:
    found = canonical(objects(BackendEntry(100), BackendEntry(30)), 1024)
    assert [one.weight for one in found.values() if isinstance(one, BackendEntry)] == [100, 30]


def test_weights_beyond_the_table_are_scaled() -> None:
    found = canonical(objects(*[BackendEntry(100)] * 19, BackendEntry(50)), 1024)
    weights = [one.weight for one in found.values() if isinstance(one, BackendEntry)]
    assert weights == [52] * 19 + [26]
    assert sum(weights) <= 1024


@given(st.lists(st.integers(1, 100), min_size=2, max_size=60), st.data())
def test_B29_the_health_of_one_backend_leaves_the_weights_of_others(bases: list[int], data: st.DataObject) -> None:
    down = data.draw(st.integers(0, len(bases) - 1))
    healthy = canonical(objects(*map(BackendEntry, bases)), 1024)
    entries = [BackendEntry(0 if place == down else base, base=base) for place, base in enumerate(bases)]
    failing = canonical(objects(*entries), 1024)
    assert {key for key in healthy if healthy[key] != failing[key]} == {VipKey(V4, backend(f"10.0.0.{down + 1}", 80))}


@given(st.lists(st.integers(1, 100), min_size=1, max_size=1024))
def test_scaled_weights_fit_unless_each_has_one(weights: list[int]) -> None:
    total = sum(weights)
    scaled = [rules.scaled(weight, total, 1024) for weight in weights]
    assert min(scaled) >= 1
    assert sum(scaled) <= 1024 + len(weights)


@pytest.mark.parametrize("length", [0, 3, 1000, 65536])
def test_a_length_that_crashes_vpp_is_refused(length: int) -> None:
    said = rules.refusal_of(V4, VipSettings(table_size=length, encapsulation="gre"))
    assert said is not None
    assert "a power of two up to 32768" in said


def test_all_ports_of_one_protocol_are_refused() -> None:
    said = rules.refusal_of(Vip.of("192.0.2.1", "tcp", 0), GRE)
    assert said == "VPP takes every protocol on a VIP of all ports: write protocol any"
    assert rules.refusal_of(Vip.of("192.0.2.1", "any", 0), GRE) is None


def test_l3dsr_is_for_ipv4() -> None:
    marked = VipSettings(table_size=1024, encapsulation="l3dsr", dscp=3)
    assert rules.refusal_of(V4, marked) is None
    assert "L3DSR is for IPv4 only" in str(rules.refusal_of(V6, marked))
