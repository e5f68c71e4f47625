"""Members of etcd that die or hang under a working fleet."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.cli.common.control_socket import REFUSED
from holdfast.store.transport.endpoints import spread
from holdfast.testing.real.etcd import EtcdCluster, EtcdMember
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup, ServerProcess
from tests.chaos.harness import SHIPPED_TIMINGS, TTL, counts, servers, wait_working

LEADER_OF_ETCD = "leader of etcd"
FOLLOWER_OF_ETCD = "follower of etcd"


def chosen(cluster: EtcdCluster, which: str) -> EtcdMember:
    leader = cluster.leader()
    return leader if which == LEADER_OF_ETCD else next(one for one in cluster.members if one is not leader)


def let_first_lead(cluster: EtcdCluster) -> EtcdMember:
    """Move etcd's leadership to the member that the servers of this machine call first, and return it."""
    url = spread(cluster.endpoints, socket.gethostname())[0]
    member = next(one for one in cluster.members if one.url == url)
    number = member.ask("/v3/maintenance/status", {})["header"]["member_id"]
    leader = cluster.leader()
    if leader is not member:
        leader.ask("/v3/maintenance/transfer-leadership", {"targetID": number})
    wait_until(lambda: cluster.leader() is member, f"{member.name} leads")
    return member


@pytest.mark.parametrize("which", [LEADER_OF_ETCD, FOLLOWER_OF_ETCD])
@pytest.mark.parametrize("blow", [EtcdMember.kill, EtcdMember.pause])
def test_leader_work_goes_on_when_a_member_of_etcd_dies_or_hangs(
    fleet: ServerGroup, which: str, blow: Callable[[EtcdMember], None]
) -> None:
    blow(chosen(fleet.cluster, which))
    # Whoever leads now, the same server or another: it must work, and the history must be without fault.
    done = {one.name: counts(one).accepted for one in fleet.members}
    wait_until(lambda: any(counts(one).accepted > done[one.name] + 5 for one in fleet.members), "leader work goes on")


def test_while_etcd_hangs_status_and_commands_name_etcd_and_not_the_server(cluster: EtcdCluster) -> None:
    with servers(cluster, 1, settings=SHIPPED_TIMINGS) as fleet:
        (server,) = fleet.members
        for member in cluster.members:
            member.pause()
        try:
            pages: list[str] = []

            def names_etcd() -> bool:
                pages.append(holdfast(server, "status").output)
                return f"does not answer {server.name}: store is unreachable: " in pages[-1]

            wait_until(names_etcd, "status names etcd", within=60)
            assert "the process hangs" not in pages[-1]
            refused = holdfast(server, "pause", "fleet", "--reason", "moving racks")
            assert refused.exit_code == REFUSED, refused.output
            assert "not done, because the store cannot be read: store is unreachable: " in refused.output
        finally:
            for member in cluster.members:
                member.resume()


def holdfast(server: ServerProcess, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--runtime", str(server.runtime)])


def test_when_both_leaders_die_at_once_the_fleet_is_led_again_within_twice_the_ttl_and_3_seconds(
    cluster: EtcdCluster,
) -> None:
    victim = let_first_lead(cluster)
    with servers(cluster, 2, isolated=True) as fleet:
        term, old = wait_working(fleet)
        old.kill()
        victim.kill()
        newer, new = fleet.wait_led(after=term, within=2 * TTL + 3)
        assert new is not old
        assert newer > term
        wait_working(fleet, after=term)
