"""Two servers of the same name on one kernel, in different PID namespaces: a pid says nothing about the other one."""

from __future__ import annotations

from holdfast.lab.fleet import server
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import server_group
from tests.chaos.harness import counts, servers, wait_working


def test_C12_a_live_leader_is_not_taken_for_dead_where_its_pid_means_nothing(cluster: EtcdCluster) -> None:
    with servers(cluster, ["twin"]) as fleet:
        term, leader = wait_working(fleet)
        with or_skip(
            server_group(cluster, ["twin"], command=server.command, region=fleet.region, isolated=True)
        ) as inside:
            (other,) = inside.members
            wait_until(
                lambda: other.says("the name twin is taken by") or fleet.wait_led()[0] != term,
                "the newcomer has looked",
            )
            before = counts(leader).accepted
            wait_until(
                lambda: counts(leader).accepted > before + 2 or fleet.wait_led()[0] != term, "the leader works on"
            )
            assert fleet.wait_led() == (term, leader)
