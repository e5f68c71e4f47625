"""Statuses of this host's endpoints: Felix's keys, the meaning of up, down and error, and when a status is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.agent.claims import Claim, ClaimKey, LocalRoute, Owner, RemoteRoute, Shape, route
from holdfast.agent.report.damping import StatusDamping
from holdfast.agent.report.endpoint_states import states
from holdfast.agent.report.endpoints import EndpointReporter
from holdfast.agent.report.reporting_host import ReportingHost
from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant, seconds
from holdfast.model.calico.endpoint import Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.reconcile import Change, Op, Outstanding, Owned
from holdfast.testing import World, simulate
from tests.agent.desired.harness import slim

REGION = Region()
NAME = EndpointName("r1", "openstack", "vm-1", "port-1")
KEY = b"/calico/felix/v2/no-region/host/r1/workload/openstack/openstack%2fvm-1/endpoint/port-1"
ROUTE = route("10.28.0.7/32")


def endpoint(interface: str = "tap1") -> Endpoint:
    spec = EndpointSpec(
        orchestrator="openstack",
        workload="vm-1",
        node="r1",
        endpoint="port-1",
        interface_name=interface,
        ip_networks=("10.28.0.7/32",),
    )
    return Endpoint.of(REGION, spec)


def made(shape: Shape, *, missing: bool = False) -> Owned[Claim]:
    return Owned(Claim(shape, Owner("r1"), missing), "region", 1)


def state(
    present: dict[ClaimKey, Owned[Claim]], *, error: str = "", blocked_by: str | None = None, interface: str = "tap1"
) -> EndpointState:
    story = (
        Outstanding(Change(Op.CREATE, ROUTE, None, made(LocalRoute(interface))), Instant(1), error=error)
        if error
        else None
    )
    found = states([slim(endpoint(interface))], present, lambda _key: story, lambda _key, _shape: blocked_by)
    return found[NAME]


@pytest.mark.parametrize(
    ("present", "error", "blocked_by", "expected"),
    [
        ({ROUTE: made(LocalRoute("tap1"))}, "", None, EndpointState.UP),
        ({}, "", None, EndpointState.DOWN),
        ({ROUTE: made(LocalRoute("tap1"), missing=True)}, "", None, EndpointState.DOWN),
        ({ROUTE: made(LocalRoute("tap2"))}, "", None, EndpointState.DOWN),
        ({ROUTE: made(RemoteRoute("192.0.2.9"))}, "", None, EndpointState.DOWN),
        ({ROUTE: made(LocalRoute("tap1"))}, "", "interface tap1 does not exist", EndpointState.DOWN),
        ({}, "out of memory", None, EndpointState.ERROR),
    ],
)
def test_an_endpoint_is_up_when_its_routes_reach_its_interface(
    present: dict[ClaimKey, Owned[Claim]], error: str, blocked_by: str | None, expected: EndpointState
) -> None:
    assert state(present, error=error, blocked_by=blocked_by) is expected


def test_an_endpoint_without_an_interface_is_down() -> None:
    assert state({}, interface="") is EndpointState.DOWN


class Said:
    """The endpoint reporter of host r1, with the states that it finds."""

    def __init__(self, world: World, machine: str = "r1", boot: str = "boot-1") -> None:
        self.world = world
        self.states: dict[EndpointName, EndpointState] | None = {NAME: EndpointState.UP}
        node = world.node(machine)
        self.are_all = True
        host = ReportingHost(REGION, "r1", boot, instance=machine)
        reporter = EndpointReporter(
            node.store(), host, lambda: self.states, node.clock.now, is_complete=lambda: self.are_all
        )
        self.task = asyncio.create_task(reporter.run())

    def value(self, key: bytes = KEY) -> bytes | None:
        entry = self.world.store.keys.get(key)
        assert entry is None or entry.lease == 0
        return None if entry is None else entry.value


def scene(story: Callable[[Said], Coroutine[Any, Any, None]]) -> None:
    async def play(world: World) -> None:
        said = Said(world)
        await story(said)
        said.task.cancel()

    simulate(1, play)


def test_a_status_is_written_as_felix_writes_it_without_a_lease_and_followed() -> None:
    async def story(said: Said) -> None:
        await asyncio.sleep(1)
        assert said.value() == b'{"status":"up"}'
        said.states = {NAME: EndpointState.DOWN}
        await asyncio.sleep(1)
        assert said.value() == b'{"status":"down"}'

    scene(story)


def test_a_status_that_is_right_is_not_written_again() -> None:
    async def story(said: Said) -> None:
        await asyncio.sleep(60)
        assert len(said.world.store.history) == 1

    scene(story)


def test_a_status_that_another_client_overwrote_is_corrected() -> None:
    async def story(said: Said) -> None:
        await asyncio.sleep(1)
        await said.world.connect("other").put(KEY, b"rubbish")
        await asyncio.sleep(1)
        assert said.value() == b'{"status":"up"}'

    scene(story)


def test_a_status_goes_with_its_endpoint_but_not_because_nothing_is_known() -> None:
    async def story(said: Said) -> None:
        await asyncio.sleep(1)
        said.states = None
        await asyncio.sleep(10)
        assert said.value() == b'{"status":"up"}'
        said.states = {}
        await asyncio.sleep(1)
        assert said.value() is None

    scene(story)


def test_no_status_goes_while_an_endpoint_may_be_one_that_cannot_be_read() -> None:
    async def story(said: Said) -> None:
        await asyncio.sleep(1)
        said.states, said.are_all = {}, False
        await asyncio.sleep(10)
        assert said.value() == b'{"status":"up"}'
        said.are_all = True
        await asyncio.sleep(1)
        assert said.value() is None

    scene(story)


def test_the_statuses_of_other_hosts_are_left_alone() -> None:
    async def story(said: Said) -> None:
        others = KEY.replace(b"/r1/", b"/r10/")
        await said.world.connect("other").put(others, b'{"status":"up"}')
        said.states = {}
        await asyncio.sleep(2)
        assert said.value(others) == b'{"status":"up"}'

    scene(story)


def test_statuses_are_written_when_an_unreachable_store_is_back() -> None:
    async def story(said: Said) -> None:
        await asyncio.sleep(1)
        for client in said.world.store._clients:
            client.link.cut()
        said.states = {NAME: EndpointState.ERROR}
        await asyncio.sleep(30)
        for client in said.world.store._clients:
            client.link.heal()
        await asyncio.sleep(15)
        assert said.value() == b'{"status":"error"}'

    scene(story)


@pytest.mark.parametrize("damped", [True, False])
def test_two_agents_of_one_name_change_a_status_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, *, damped: bool
) -> None:
    if not damped:
        monkeypatch.setattr(StatusDamping, "may_write", lambda *_given: True)

    async def story(said: Said) -> None:
        other = Said(said.world, machine="r1-copy")
        other.states = {NAME: EndpointState.DOWN}
        await asyncio.sleep(300)
        changes = len(said.world.store.history)
        assert changes < 40 if damped else changes > 400
        if not damped:
            return
        said.states = {NAME: EndpointState.ERROR}
        await asyncio.sleep(0.8)
        assert said.value() == b'{"status":"error"}', "a new state is written at once"
        other.task.cancel()
        await asyncio.sleep(120)
        assert said.value() == b'{"status":"error"}'

    scene(story)


async def reports(world: World, boot: str, instance: str) -> None:
    """Write the report of an agent of host r1."""
    value = AGENT_REPORT.encode(AgentReport(version="1", boot_id=boot, instance=instance))
    await world.connect("reporter").put(AGENT_REPORT.key(REGION, "r1"), value)


def has_written(said: Said, machine: str) -> bool:
    return any(write.client.startswith(machine) for write in said.world.store.history)


def test_of_two_agents_of_one_name_on_a_machine_only_the_one_that_reports_writes_statuses() -> None:
    async def story(said: Said) -> None:
        await reports(said.world, "boot-1", "r1")
        other = Said(said.world, "copy")
        other.states = {NAME: EndpointState.DOWN}
        await asyncio.sleep(60)
        assert (said.value(), has_written(said, "copy")) == (b'{"status":"up"}', False)
        await reports(said.world, "boot-1", "copy")
        await asyncio.sleep(1)
        assert said.value() == b'{"status":"down"}'
        written = len(said.world.store.history)
        await asyncio.sleep(60)
        assert len(said.world.store.history) == written
        other.task.cancel()

    scene(story)


def test_a_report_of_the_machine_before_it_was_booted_holds_no_status() -> None:
    async def story(said: Said) -> None:
        await reports(said.world, "boot-0", "before")
        await asyncio.sleep(1)
        assert said.value() == b'{"status":"up"}'

    scene(story)


def test_a_status_that_a_restored_store_has_lost_is_written_again() -> None:
    damping, now = StatusDamping(), Instant(10**12)
    damping.wrote({KEY: EndpointState.UP}, 500, now)
    assert not damping.may_write(KEY, EndpointState.UP, now + seconds(1), 499), "our own write is on its way"
    assert damping.may_write(KEY, EndpointState.UP, now + seconds(6), 100)
