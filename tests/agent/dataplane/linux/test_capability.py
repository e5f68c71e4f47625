"""One agent per network namespace, and only with CAP_NET_ADMIN."""

from __future__ import annotations

import asyncio
import sys

import pytest

from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.netlink.netns import inside
from holdfast.reconcile import Away
from holdfast.testing.real.netns import NamespaceNetwork
from tests.agent.dataplane.linux.harness import HostHarness, creates, deletes, vxlan_peer

_ASKS = "from holdfast.agent.dataplane.linux import LinuxDataplane; print(LinuxDataplane().ready())"


def the_agent(site: HostHarness) -> LinuxDataplane:
    return inside(site.host.system_name, lambda: LinuxDataplane(exclusive=True))


def test_a_second_agent_in_the_namespace_waits_until_the_first_is_gone(site: HostHarness) -> None:
    first = the_agent(site)
    with pytest.raises(Away, match="another agent runs in this network namespace; stop one of the two"):
        the_agent(site)
    first.close()
    the_agent(site).close()


def test_agents_of_two_namespaces_do_not_know_of_each_other(namespaces: NamespaceNetwork) -> None:
    one, two = (the_agent(HostHarness(namespaces, name)) for name in ("one", "two"))

    async def scene() -> None:
        assert (one.ready(), two.ready()) == (None, None)
        for agent, wanted in ((one, vxlan_peer(7)), (two, vxlan_peer(8))):
            assert not any(await agent.apply(creates(wanted)))
        assert await one.read() == vxlan_peer(7)
        assert not any(await one.apply(deletes(vxlan_peer(7))))
        assert await two.read() == vxlan_peer(8)

    asyncio.run(scene())
    one.close()
    two.close()


def test_a_reader_may_run_beside_the_agent(site: HostHarness) -> None:
    agent = the_agent(site)
    with site.dataplane() as other:
        assert other.ready() is None
    agent.close()


def test_without_the_capability_one_sentence_names_it_and_how_to_give_it(site: HostHarness) -> None:
    without = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    said = site.host.run(*without, sys.executable, "-c", _ASKS)
    assert said == (
        "the agent may not change this host's routes: start it as root, or give its systemd unit "
        "AmbientCapabilities=CAP_NET_ADMIN\n"
    )


def test_a_namespace_that_does_not_exist_is_waited_for_with_a_sentence() -> None:
    with pytest.raises(
        Away, match="network namespace nowhere is unreachable: No such file or directory; ip netns lists"
    ):
        inside("nowhere", LinuxDataplane)
