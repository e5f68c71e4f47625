"""View of one host: from the store, and from its agent's report."""

from __future__ import annotations

import asyncio

from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS, AgentStatus
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.server.election.views import HostSeen, read_host
from holdfast.testing import FakeStore

REGION = Region()
ALIVE = AgentStatus("2026-11-15T03:12:44Z", 12.0)


def look(name: str, values: dict[bytes, bytes]) -> HostSeen:
    async def ask() -> HostSeen:
        store = FakeStore().client()
        for key, value in values.items():
            await store.put(key, value)
        return await read_host(store, REGION, name)

    return asyncio.run(ask())


def endpoint(node: str, workload: str) -> tuple[bytes, bytes]:
    spec = EndpointSpec(orchestrator="holdfast", workload=workload, node=node, endpoint="eth0")
    return ENDPOINT.key(REGION, spec.name), ENDPOINT.encode(Endpoint.of(REGION, spec))


def test_a_live_host_is_shown_with_its_report() -> None:
    report = AgentReport(version="1", boot_id="b", counts={"programmed": 3})
    values = {
        HOST.key(REGION, "r-1"): HOST.encode(Host.of("r-1", HostSpec(bgp=Bgp(ipv4_address="192.0.2.1/24")))),
        AGENT_STATUS.key(REGION, "r-1"): AGENT_STATUS.encode(ALIVE),
        LAST_STATUS.key(REGION, "r-1"): LAST_STATUS.encode(ALIVE),
        AGENT_REPORT.key(REGION, "r-1"): AGENT_REPORT.encode(report),
        **dict([endpoint("r-1", "web"), endpoint("r-1", "db"), endpoint("r-10", "web")]),
    }
    assert look("r-1", values) == HostSeen("r-1", True, ["192.0.2.1"], 2, True, ALIVE.time, report)


def test_a_silent_host_is_shown_with_the_time_of_its_last_report() -> None:
    assert look("r-1", {LAST_STATUS.key(REGION, "r-1"): LAST_STATUS.encode(ALIVE)}) == HostSeen(
        "r-1", False, [], 0, False, ALIVE.time
    )


def test_a_value_that_cannot_be_read_is_named_and_hides_nothing_else() -> None:
    values = {AGENT_REPORT.key(REGION, "r-1"): b"rubbish", AGENT_STATUS.key(REGION, "r-1"): AGENT_STATUS.encode(ALIVE)}
    found = look("r-1", values)
    assert (found.alive, found.report) == (True, None)
    assert "/agents/r-1" in found.unreadable[0]


def test_a_host_with_felix_keys_of_a_live_agent_only_has_reported() -> None:
    found = look("r-1", {AGENT_STATUS.key(REGION, "r-1"): AGENT_STATUS.encode(ALIVE)})
    assert (found.alive, found.reported) == (True, ALIVE.time)


def test_a_report_that_cannot_be_read_is_the_report_of_a_live_agent() -> None:
    found = look("r-1", {AGENT_STATUS.key(REGION, "r-1"): b"rubbish"})
    assert (found.alive, found.reported, len(found.unreadable)) == (True, None, 1)
