"""A leader that cannot do a leader's work, and others that could."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial

import pytest

from holdfast.runtime.control import Request, ask
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fault import fault
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerProcess
from tests.chaos.harness import module_command, servers, wait_working, why_ended

command = partial(module_command, module="tests.chaos.server_without_database")

SHIPPED_TIMINGS = {
    "server.ttl": "15s",
    "server.renew_every": "2s",
    "server.renew_deadline": "10s",
    "server.rpc_timeout": "5s",
}
"""The defaults: ten minutes on a busy machine cost a leader with short ones its lease, which proves nothing here."""


def take_database_away(server: ServerProcess) -> None:
    (server.home / "state" / "database-away").touch()


@fault("C33", without="holdfast.server.election.worker:successor", returns=None)
def test_C33_a_leader_without_its_database_gives_way_to_a_server_that_has_one(cluster: EtcdCluster) -> None:
    with servers(cluster, 2, command=command) as fleet:
        term, old = wait_working(fleet)
        take_database_away(old)
        newer, new = wait_working(fleet, after=term, within=20)
        assert new is not old
        assert why_ended(fleet, term, before=newer) == "it could not do a leader's work, and another server can"


@pytest.mark.parametrize("away_s", [4, pytest.param(600, marks=pytest.mark.soak)])
def test_C45_the_leader_stays_while_postgresql_is_away_for_every_server(
    cluster: EtcdCluster, postgres: Postgres, away_s: float
) -> None:
    address = postgres.create_database()
    configured = address.replace("postgresql+psycopg:", "postgresql:")
    settings = {"inventory.database": configured, "inventory.poll_every": "500ms", **SHIPPED_TIMINGS}
    impatient = partial(module_command, module="tests.chaos.short_patience")
    with fresh_engine(address), servers(cluster, 2, settings=settings, command=impatient) as fleet:
        term, leader = wait_working(fleet)
        (other,) = fleet.others(leader)
        wait_until(lambda: able(leader) == able(other) == [True, True], "both servers can use the database")
        postgres.process.stop(signal.SIGINT)
        try:
            wait_until(lambda: able(leader) == [False, False], "no server can use the database")
            deadline = time.monotonic() + away_s  # beyond the patience of the leader
            while time.monotonic() < deadline:
                assert fleet.wait_led()[0] == term
                time.sleep(0.2)
        finally:
            postgres.start()
        wait_until(lambda: able(leader) == [True, True], "both servers can use the database again")
        assert fleet.wait_led()[0] == term


def able(server: ServerProcess) -> list[bool]:
    """Return the ability of each server to do a leader's work, as this one knows it."""
    answer = asyncio.run(ask(server.runtime / "server.sock", Request("servers")))
    return [one["able"] for one in answer.result or ()]
