"""`holdfast doctor` on a host whose agent programs a kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.cli.doctor import Severity
from holdfast.cli.doctor.agent import HostFacts, examine, findings
from holdfast.config.sections.agent import AgentDataplaneSettings, AgentSettings
from holdfast.config.sections.linux import MAIN_TABLE, LinuxSettings
from holdfast.testing.real.netns import NamespaceNetwork
from tests.agent.dataplane.linux.harness import HostHarness, creates, vxlan_peer

GOOD = HostFacts("6.1.0-18-amd64")


def test_a_machine_without_problems_is_said_to_be_so() -> None:
    assert {one.severity for one in findings(GOOD, LinuxSettings())} == {Severity.GOOD}


def test_routes_of_others_in_the_main_table_are_no_problem() -> None:
    found = HostFacts(GOOD.kernel, GOOD.forwarding, foreign_routes=500)
    assert {one.severity for one in findings(found, LinuxSettings(table=MAIN_TABLE))} == {Severity.GOOD}
    assert Severity.WRONG in {one.severity for one in findings(found, LinuxSettings())}


@pytest.mark.parametrize(
    ("release", "is_good"), [("4.19.0", False), ("5.2.21", False), ("5.3", True), ("6.18.5", True)]
)
def test_a_kernel_without_nexthop_objects_is_too_old(release: str, *, is_good: bool) -> None:
    first = next(findings(HostFacts(release), LinuxSettings()))
    assert (first.subject, first.severity is Severity.GOOD) == ("kernel", is_good)


async def _programmed(dataplane: LinuxDataplane) -> Sequence[str | None]:
    return await dataplane.apply(creates(vxlan_peer(7)))


def examined(config: AgentSettings) -> Mapping[str, str]:
    """Findings that are not good, by subject."""
    return {one.subject: one.sentence for one in examine(config) if one.severity is not Severity.GOOD}


def test_each_problem_of_a_real_host_is_found_with_what_to_do(namespaces: NamespaceNetwork) -> None:
    site = HostHarness(namespaces)
    config = AgentSettings(dataplane=AgentDataplaneSettings(netns=site.host.system_name))
    with site.dataplane() as dataplane:
        assert not any(asyncio.run(_programmed(dataplane)))
    assert examined(config) == {}

    off = "/proc/sys/net/ipv4/conf/holdfast4/forwarding"
    site.host.run("sh", "-c", f"echo 0 >{off}; echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter")
    site.ip(f"link set {site.uplink} mtu 1400")
    site.ip("route add blackhole 198.51.100.0/24 table 7500 proto static")
    site.ip("route add blackhole 198.51.101.0/24 proto 175")
    found = examined(config)
    assert found.keys() == {"forwarding", "rp_filter", "mtu", "table", "protocol"}
    assert "sysctl -w net.ipv4.conf.holdfast4.forwarding=1" in found["forwarding"]
    assert "set net.ipv4.conf.all.rp_filter and net.ipv4.conf.holdfast4.rp_filter to 2" in found["rp_filter"]
    assert "set agent.linux.underlay_mtu to 1400 on all hosts" in found["mtu"]
    assert found["table"] == "table 7500 has routes of other programs (1): set another agent.linux.table"
    assert "other tables have routes with protocol 175 (1)" in found["protocol"]
    command = "ip -4 route flush table main proto 175"
    assert command in found["protocol"]
    site.host.run(*command.split())
    assert "protocol" not in examined(config)


def test_an_uplink_that_does_not_forward_is_wrong_and_one_that_is_not_known_is_a_note() -> None:
    found = HostFacts(GOOD.kernel, {("eth0", 4)})
    given = [(4, "eth0"), (6, "eth0.7"), (4, "")]
    checks = [one for one in findings(found, LinuxSettings(), given) if one.subject == "forwarding"]
    assert [one.severity for one in checks] == [Severity.GOOD, Severity.WRONG, Severity.NOTE]
    assert "by IPv6 through eth0.7" in checks[1].sentence
    assert checks[1].sentence.endswith("sysctl -w net.ipv6.conf.eth0/7.force_forwarding=1")


def test_forwarding_is_read_of_every_device(namespaces: NamespaceNetwork) -> None:
    site = HostHarness(namespaces)
    config = AgentSettings(dataplane=AgentDataplaneSettings(netns=site.host.system_name))
    given = [(4, site.uplink)]
    assert [one.severity for one in examine(config, given) if one.subject == "forwarding"] == [Severity.WRONG]
    site.host.run("sh", "-c", f"echo 1 >/proc/sys/net/ipv4/conf/{site.uplink}/forwarding")
    assert [one.severity for one in examine(config, given) if one.subject == "forwarding"] == [Severity.GOOD]


def test_a_namespace_that_is_gone_is_a_note() -> None:
    config = replace(AgentSettings(), dataplane=AgentDataplaneSettings(netns="no-such-namespace"))
    (one,) = examine(config)
    assert (one.severity, "no-such-namespace" in one.sentence) == (Severity.NOTE, True)
