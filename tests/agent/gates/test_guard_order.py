"""The order in which the guard and the setup of an interface go: after the routes, and the guard before its sources."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from holdfast.agent.claims import (
    GUARD,
    Claim,
    ClaimKey,
    GuardElement,
    GuardTable,
    InterfaceSetup,
    LocalRoute,
    Shape,
    guarded,
    interface,
    route,
    source,
)
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.gates.dependents import DependentsGate
from holdfast.agent.gates.prefix import PrefixGate
from holdfast.agent.present import Present
from holdfast.model.fleet.prefix_policy import PrefixPolicy
from holdfast.reconcile import Change, Op, Owned
from tests.agent.gates.test_gates import NOW, delete, judged, present

WAY = route("10.65.0.1/32")
SOURCE, GUARDED, SETUP = source("tap1", WAY), guarded("tap1"), interface(4, "tap1")
ALL: dict[ClaimKey, Shape] = {
    GUARD: GuardTable(7500, 4789),
    WAY: LocalRoute("tap1"),
    SETUP: InterfaceSetup(),
    SOURCE: GuardElement(),
    GUARDED: GuardElement(),
}


def gate(there: Present, wanted: Collection[ClaimKey] = (), *, guards: bool = True) -> DependentsGate:
    return DependentsGate(there, guards=guards, is_wanted=lambda key: key in wanted)


@pytest.mark.parametrize("key", [SETUP, SOURCE, GUARDED])
def test_what_a_route_leads_to_stays_as_long_as_the_route(key: ClaimKey) -> None:
    there = present(ALL)
    assert judged(gate(there, {GUARDED}), delete(key, ALL[key])) is not None
    there.drop(WAY)
    assert key in there.take_released()
    assert judged(gate(there, {GUARDED}), delete(key, ALL[key])) is None


def test_a_source_goes_after_the_guard_of_its_interface() -> None:
    there = present({key: shape for key, shape in ALL.items() if key != WAY})
    assert judged(gate(there), delete(SOURCE, ALL[SOURCE])) is not None
    assert judged(gate(there), delete(GUARDED, ALL[GUARDED])) is None
    there.drop(GUARDED)
    assert SOURCE in there.take_released()
    assert judged(gate(there), delete(SOURCE, ALL[SOURCE])) is None


def test_an_interface_that_stays_guarded_loses_an_address_at_once() -> None:
    there = present({key: shape for key, shape in ALL.items() if key != WAY})
    assert judged(gate(there, {GUARDED}), delete(SOURCE, ALL[SOURCE])) is None


@pytest.mark.parametrize("key", [GUARD, SOURCE, GUARDED])
def test_a_guard_that_is_off_goes_while_the_routes_stay(key: ClaimKey) -> None:
    assert judged(gate(present(ALL), guards=False), delete(key, ALL[key])) is None


def test_an_element_waits_for_the_table() -> None:
    created = [Change(Op.CREATE, key, None, owned(ALL[key])) for key in (SOURCE, GUARD)]
    assert judged(gate(present({})), created[0]) is not None
    assert judged(gate(present({GUARD: ALL[GUARD]})), created[0]) is None


def owned(shape: Shape) -> Owned[Claim]:
    return Owned(Claim(shape), "region", 1)


@pytest.mark.parametrize(
    ("prefix", "passes"),
    [("10.65.0.9/32", True), ("0.0.0.0/0", True), ("127.0.0.0/8", False), ("192.0.2.1/32", False)],
)
def test_a_source_is_held_like_a_route_except_for_one_that_is_anywhere(prefix: str, *, passes: bool) -> None:
    policy = PrefixPolicy({"192.0.2.1": "an address of the store"})
    change: ClaimChange = Change(Op.CREATE, source("tap1", route(prefix)), None, owned(GuardElement()))
    assert (PrefixGate(lambda: policy).judge(change, {}, 0, NOW) is None) == passes
