"""Conformance of the dataplanes that need no kernel, and features of the fake."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.agent.claims import ClaimKind, RemoteRoute, RoutingRule, nexthop, route, rule
from holdfast.agent.dataplane.api import ReadInterrupted
from holdfast.testing.fakes.kernel import FakeKernel
from tests.agent.dataplane.conformance import CASES, M1, T1, U1, Case, Ground, change, full, made, tunnel


def fake() -> Ground:
    kernel = FakeKernel(interfaces={"tap1", "tap2"}, own={rule(4, 100): RoutingRule(100)})
    return Ground(kernel, absent="tap9")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_conforms(case: Case) -> None:
    async def prove() -> None:
        await case(fake())

    asyncio.run(prove())


def test_a_nexthop_takes_its_routes_with_it() -> None:
    kernel = FakeKernel()
    asyncio.run(made(kernel, [*tunnel(T1, M1, U1), (route("10.65.0.1/32"), RemoteRoute(T1))]))
    asyncio.run(kernel.apply([change(nexthop(T1), None, dict(tunnel(T1, M1, U1))[nexthop(T1)])]))
    assert route("10.65.0.1/32") not in kernel.objects


def test_a_link_that_flaps_drops_all_but_forwarding_entries_and_is_a_disturbance() -> None:
    async def flap() -> object:
        await made(kernel, full(Ground(kernel)))
        kernel.flap()
        return await kernel.disturbed()

    kernel = FakeKernel()
    assert asyncio.run(flap()) is None
    assert {key.kind for key in kernel.objects} == {ClaimKind.DEVICE, ClaimKind.FORWARDING}


def test_an_interrupted_read_answers_with_nothing_at_all() -> None:
    kernel = FakeKernel(interruptions=1)
    asyncio.run(made(kernel, tunnel(T1, M1, U1)))
    with pytest.raises(ReadInterrupted):
        asyncio.run(kernel.read())
    assert len(asyncio.run(kernel.read())) == 4


def test_a_foreign_object_is_neither_seen_nor_taken_over_nor_removed() -> None:
    kernel = FakeKernel(foreign={nexthop(T1): dict(tunnel(T1, M1, U1))[nexthop(T1)]})
    taken = change(nexthop(T1), kernel.foreign[nexthop(T1)])
    removed = change(nexthop(T1), None, kernel.foreign[nexthop(T1)])
    assert asyncio.run(kernel.apply([taken, removed])) == ["nexthop 10.99.0.1 belongs to another program", None]
    assert asyncio.run(kernel.read()) == {}
    assert nexthop(T1) in kernel.foreign
