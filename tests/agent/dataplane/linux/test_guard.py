"""The guard's table on a real kernel: its objects, and whom it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from holdfast.agent.claims import (
    GUARD,
    ClaimKey,
    ClaimKind,
    GuardElement,
    GuardTable,
    InterfaceSetup,
    Shape,
    guarded,
    interface,
    route,
    sender,
    source,
)
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.agent.gates.readiness import InterfaceGate, ReadinessReason
from holdfast.config.sections.linux import LinuxSettings
from holdfast.model.base.time import Instant
from holdfast.reconcile import Op
from tests.agent.dataplane.linux.harness import HostHarness, creates, deletes, replace
from tests.agent.dataplane.linux.test_foreign_objects import disturbed, quiet

TABLE: Mapping[ClaimKey, Shape] = {GUARD: GuardTable(7500, 4789)}
ELEMENTS: Mapping[ClaimKey, Shape] = {
    key: GuardElement()
    for key in (
        sender("192.0.2.7"),
        sender("2001:db8::7"),
        source("tap1", route("10.28.0.1/32")),
        source("tap1", route("10.28.4.0/26")),
        source("tap1", route("fd00:28::1/128")),
        source("a-long-tap-name", route("fd00:28:1::/64")),
        source("tap2", route("0.0.0.0/0")),
        guarded("tap1"),
        guarded("a-long-tap-name"),
    )
}
WANTED = {**TABLE, **ELEMENTS}
FOREIGN = "table inet other { set interfaces { type ifname; elements = { tap1 }; }; chain input { counter drop; }; }"


def listed(site: HostHarness) -> str:
    return site.host.run("nft", "list", "ruleset")


@pytest.fixture
def dataplane(site: HostHarness) -> Iterator[LinuxDataplane]:
    with site.dataplane(guard=True) as made:
        yield made


def test_what_was_made_is_read_back_and_all_of_it_can_be_deleted(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        assert await dataplane.read() == WANTED
        assert not any(await dataplane.apply(creates(WANTED)))
        assert await dataplane.read() == WANTED
        assert not any(await dataplane.apply(deletes(ELEMENTS)))
        assert await dataplane.read() == TABLE
        assert not any(await dataplane.apply(deletes(WANTED)))
        assert await dataplane.read() == {}

    asyncio.run(scene())
    assert listed(site) == ""


def test_the_table_goes_with_everything_in_it(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        assert not any(await dataplane.apply(sorted(deletes(WANTED), key=lambda change: change.key)))
        assert await dataplane.read() == {}

    asyncio.run(scene())
    assert listed(site) == ""


def test_an_element_that_the_kernel_refuses_does_not_stop_the_others(dataplane: LinuxDataplane) -> None:
    inner = source("tap1", route("10.28.4.0/28"))  # Linux has no overlapping ranges in one set

    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        further = {key: GuardElement() for key in (inner, source("tap1", route("10.28.9.0/24")))}
        answers = await dataplane.apply(creates(further))
        assert [answer is None for answer in answers] == [key != inner for key in sorted(further)]
        assert inner not in await dataplane.read()
        assert source("tap1", route("10.28.9.0/24")) in await dataplane.read()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("flush ruleset", WANTED),
        ("delete table inet holdfast_guard", WANTED),
        ("delete element inet holdfast_guard interfaces { tap1 }", [guarded("tap1")]),
        ("flush set inet holdfast_guard senders4", [sender("192.0.2.7")]),
        ("flush chain inet holdfast_guard workload", [GUARD]),
    ],
)
def test_what_others_delete_is_noticed_and_made_again(
    site: HostHarness, dataplane: LinuxDataplane, words: str, missing: list[ClaimKey]
) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        await quiet(dataplane)
        site.host.run("nft", words)
        assert await disturbed(dataplane) is None
        there = await dataplane.read()
        assert {key for key in WANTED if there.get(key) != WANTED[key]} == set(missing)
        assert not any(await dataplane.apply(creates({key: WANTED[key] for key in missing})))
        assert await dataplane.read() == WANTED

    asyncio.run(scene())


def test_another_vni_replaces_the_rules_and_keeps_the_elements(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        with site.dataplane(LinuxSettings(vni=42), guard=True) as other:
            there = await other.read()
            assert there[GUARD] != GuardTable(42, 4789)
            assert not any(await other.apply([replace(GUARD, there[GUARD], GuardTable(42, 4789))]))
            assert await other.read() == {**WANTED, GUARD: GuardTable(42, 4789)}

    asyncio.run(scene())


def test_N14_tables_of_others_stay_even_under_our_name(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.host.run("nft", FOREIGN)
    site.host.run("nft", "add table inet holdfast_guard; add chain inet holdfast_guard input")
    before = listed(site)

    async def scene() -> None:
        assert await dataplane.read() == {}
        assert await dataplane.apply(creates(TABLE)) == [
            "the table inet holdfast_guard belongs to another program: delete it, or set agent.guard: false"
        ]
        assert not any(await dataplane.apply(deletes(WANTED)))
        assert listed(site) == before
        site.host.run("nft", "delete table inet holdfast_guard")
        assert not any(await dataplane.apply(creates(WANTED)))
        assert not any(await dataplane.apply(deletes(WANTED)))

    asyncio.run(scene())
    assert "table inet other" in listed(site)
    assert "holdfast_guard" not in listed(site)


def local_keys(name: str) -> list[ClaimKey]:
    return [interface(4, name), source(name, route("10.28.0.1/32")), guarded(name)]


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("uplink", "has an address of this host"),
        ("second0", "has a default route of this host"),
        ("lo", "is the loopback device"),
        ("holdfast4", "is a tunnel of this host"),
    ],
)
def test_an_endpoint_on_a_device_that_the_host_needs_is_held_and_cuts_nothing_off(
    site: HostHarness, device: str, why: str
) -> None:
    if device == "second0":
        site.interface(device)
        site.ip("route add default dev second0")
    name = site.uplink if device == "uplink" else device
    with site.dataplane(underlays={4: "10.0.0.1"}.get, guard=True) as dataplane:
        gate = InterfaceGate(dataplane)
        for key in local_keys(name):
            shape = InterfaceSetup() if key.kind is ClaimKind.INTERFACE else GuardElement()
            closed = gate.judge(*judgeable(key, shape))
            assert closed is not None
            assert closed.reason is ReadinessReason.INTERFACE_UNFIT
            assert (closed.detail, closed.opens) == (f"{name} {why}", "give the endpoint another interfaceName")


def test_the_interface_of_a_workload_is_guarded(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.interface("tap1")
    gate = InterfaceGate(dataplane)
    for key in local_keys("tap1")[1:]:
        assert gate.judge(*judgeable(key, GuardElement())) is None


def judgeable(key: ClaimKey, shape: Shape) -> tuple[ClaimChange, Mapping[Op, int], int, Instant]:
    (change,) = creates({key: shape})
    return change, {Op.CREATE: 1}, 10, Instant(1)


def test_changes_of_other_tables_disturb_nobody(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        assert not any(await dataplane.apply(creates(WANTED)))
        await quiet(dataplane)
        waiting = asyncio.create_task(dataplane.disturbed())
        site.host.run("nft", FOREIGN)
        await asyncio.sleep(0.2)  # not for luck: an event would have arrived, as in the tests above
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(scene())
