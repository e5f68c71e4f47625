"""Electors that die or freeze while the rest of their server lives on."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial

import pytest

from holdfast.testing.fault import fault
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup
from tests.chaos.harness import DEADLINE, TTL, counts, servers, wait_working, why_ended

WATCHFUL = {"runtime.grace_after": "2s", "runtime.heartbeat_after": "3s", "runtime.term_grace": "1s"}
"""Supervisors that notice soon: a frozen elector is replaced after some 5 s instead of some 16 s."""


def signal_electors(fleet: ServerGroup, number: signal.Signals) -> None:
    for server in fleet.members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.worker("elector"), number)


def test_a_leader_whose_elector_was_killed_is_succeeded_and_gets_a_new_elector(fleet: ServerGroup) -> None:
    term, old = wait_working(fleet)
    dead = old.worker("elector")
    os.kill(dead, signal.SIGKILL)
    newer, _ = wait_working(fleet, after=term)
    assert why_ended(fleet, term, before=newer) == "its process died on this machine"
    wait_until(lambda: old.worker("elector") != dead, "the elector is replaced")


def test_C1_workers_stop_believing_at_the_deadline_when_their_elector_is_silent(cluster: EtcdCluster) -> None:
    # Nobody else wants to lead, the lease lives on and nobody replaces the elector yet: only the deadline can end it.
    with servers(cluster, 1, settings={"server.ttl": "8s"}) as fleet:
        term, leader = wait_working(fleet)
        elector = leader.worker("elector")
        os.kill(elector, signal.SIGSTOP)
        wait_until(lambda: counts(leader).assumed_term != term, "the writer stops by itself", within=DEADLINE + 2)
        assert leader.worker("elector") == elector
        assert counts(leader).refused == 0


@fault(
    "C32",
    without="holdfast.runtime.daemon.supervisor:worker_verdict",
    by="tests.chaos.without_protection:only_exits_count",
    sees=(TimeoutError, r'wait_until\(partial\(server.says, "\): sending SIGTERM"\), "the'),
)
def test_C32_a_fleet_whose_electors_all_froze_at_once_is_led_again(cluster: EtcdCluster) -> None:
    with servers(cluster, 2, settings=WATCHFUL) as fleet:
        term, _ = wait_working(fleet)
        signal_electors(fleet, signal.SIGSTOP)
        for server in fleet.members:
            wait_until(partial(server.says, "): sending SIGTERM"), "the frozen elector is noticed", within=8)
        wait_working(fleet, after=term, within=TTL + 17)


def test_C32_a_fleet_whose_electors_were_all_killed_at_once_is_led_again(fleet: ServerGroup) -> None:
    term, _ = wait_working(fleet)
    signal_electors(fleet, signal.SIGKILL)
    wait_working(fleet, after=term, within=TTL + 17)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_C32_with_the_default_timings_a_fleet_is_led_again_within_ttl_and_17_seconds(
    cluster: EtcdCluster, number: signal.Signals
) -> None:
    default = {"server.ttl": "15s", "server.renew_every": "2s", "server.renew_deadline": "10s"}
    with servers(cluster, 3, settings={**default, "server.rpc_timeout": "5s"}) as fleet:
        term, _ = wait_working(fleet)
        signal_electors(fleet, number)
        wait_working(fleet, after=term, within=15 + 17)
