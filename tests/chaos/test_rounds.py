"""Many blows in a row, in an order that a seed decides; and the long freeze that nobody waits for every day."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping

import pytest

from holdfast.lab.fleet.history_check import writes_after
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup
from tests.chaos.harness import assert_faultless, counts, history, servers, wait_working

ROUNDS = 25
DEFAULTS = {"server.ttl": "15s", "server.renew_every": "2s", "server.renew_deadline": "10s", "server.rpc_timeout": "5s"}


def freeze_leader(fleet: ServerGroup) -> None:
    term, old = fleet.wait_led()
    old.freeze()
    fleet.wait_led(after=term)
    old.thaw()


def freeze_elector(fleet: ServerGroup) -> None:
    term, old = fleet.wait_led()
    pid = old.worker("elector")
    os.kill(pid, signal.SIGSTOP)
    fleet.wait_led(after=term)
    os.kill(pid, signal.SIGCONT)


def restart_any_member_of_etcd(fleet: ServerGroup) -> None:
    member = random.choice(fleet.cluster.members)
    member.kill()
    member.restart()


def pause_any_member_of_etcd(fleet: ServerGroup) -> None:
    member = random.choice(fleet.cluster.members)
    member.pause()
    wait_working(fleet)
    member.resume()


def kill_both_leaders(fleet: ServerGroup) -> None:
    term, old = fleet.wait_led()
    member = fleet.cluster.leader()
    old.kill()
    member.kill()
    fleet.wait_led(after=term)
    member.restart()


FAULTS: Mapping[str, Callable[[ServerGroup], None]] = {
    "kill the leader": lambda fleet: fleet.leader().kill(),
    "stop the leader": lambda fleet: fleet.leader().stop(),
    "freeze the leader": freeze_leader,
    "kill its elector": lambda fleet: os.kill(fleet.leader().worker("elector"), signal.SIGKILL),
    "freeze its elector": freeze_elector,
    "restart a member of etcd": restart_any_member_of_etcd,
    "pause a member of etcd": pause_any_member_of_etcd,
    "kill both leaders": kill_both_leaders,
    "delete the leader key": ServerGroup.depose,
}


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_any_faults_in_any_order_a_leader_works_and_no_write_was_wrong(cluster: EtcdCluster, seed: int) -> None:
    rng = random.Random(seed)
    random.seed(seed)
    with servers(cluster, 3) as fleet:
        for _ in range(ROUNDS):
            name = rng.choice(sorted(FAULTS))
            FAULTS[name](fleet)
            for server in fleet.members:
                if not server.process.alive:
                    server.start()
            fleet.wait_all_run()
            term, _leader = fleet.wait_led()
            wait_working(fleet, after=term - 1)
            assert_faultless(fleet)


@pytest.mark.soak
def test_a_leader_frozen_for_a_minute_is_succeeded_within_ttl_and_1_second_and_writes_nothing_more(
    cluster: EtcdCluster,
) -> None:
    with servers(cluster, 2, settings=DEFAULTS) as fleet:
        term, old = wait_working(fleet)
        before = counts(old)
        thaw_at = time.monotonic() + 60
        old.freeze()
        newer, new = fleet.wait_led(after=term, within=15 + 1)
        assert new is not old
        wait_until(lambda: time.monotonic() >= thaw_at, "a minute passes", within=60)
        old.thaw()
        wait_until(lambda: counts(old).refused > before.refused, "the old leader's write is refused")
        assert counts(old).reason == f"term {term} is over: term {newer} leads now; nothing was written"
        assert writes_after(history(fleet), newer, old.name) == 0
