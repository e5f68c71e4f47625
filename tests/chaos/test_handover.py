"""A leader that cannot do a leader's work, and others that could."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from holdfast.inventory.edit.editor import Editor
from holdfast.runtime.control import Request, ask
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fault import fault
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerProcess
from tests.chaos.harness import SHIPPED_TIMINGS, STEADY, module_command, servers, wait_working, why_ended
from tests.chaos.test_histories import endpoint

impatient = partial(module_command, module="tests.chaos.short_patience")
command = partial(module_command, module="tests.chaos.server_without_database")


def take_database_away(server: ServerProcess) -> None:
    (server.home / "state" / "database-away").touch()


@fault(
    "C33",
    without="holdfast.server.election.worker:successor",
    returns=None,
    sees=(TimeoutError, r"term, leader = fleet.wait_led\(after=after, within=within\)"),
)
def test_C33_a_leader_without_its_database_gives_way_to_a_server_that_has_one(cluster: EtcdCluster) -> None:
    with servers(cluster, 2, command=command, settings=STEADY) as fleet:
        term, old = wait_working(fleet)
        take_database_away(old)
        newer, new = wait_working(fleet, after=term, within=30)
        assert new is not old
        assert why_ended(fleet, term, before=newer) == "it could not do a leader's work, and another server can"


@pytest.mark.parametrize("away_s", [4, pytest.param(600, marks=pytest.mark.soak)])
def test_C45_the_leader_stays_while_postgresql_is_away_for_every_server(
    cluster: EtcdCluster, postgres: Postgres, away_s: float
) -> None:
    address = postgres.create_database()
    configured = address.replace("postgresql+psycopg:", "postgresql:")
    settings = {"inventory.database": configured, "inventory.poll_every": "500ms", **SHIPPED_TIMINGS}
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
    return [one["able"] for one in seen_by(server)]


def why_unable(server: ServerProcess, name: str) -> str:
    """Return why the server of that name cannot do a leader's work, as this one knows it."""
    return "".join(one["why_not"] for one in seen_by(server) if one["name"] == name)


def seen_by(server: ServerProcess) -> Sequence[dict[str, Any]]:
    answer = asyncio.run(ask(server.runtime / "server.sock", Request("servers")))
    return answer.result or ()


def test_a_leader_whose_database_is_read_only_gives_way_and_cannot_be_handed_the_leadership_back(
    cluster: EtcdCluster, postgres: Postgres
) -> None:
    """Read-only for this server alone, as behind a connection pool that sends it to a replica."""
    address = postgres.create_database()
    for name in ("s1", "s2"):
        postgres.query("postgres", f"CREATE ROLE {name} SUPERUSER LOGIN")
    settings = {"inventory.poll_every": "500ms", **STEADY}
    with (
        fresh_engine(address) as engine,
        servers(cluster, 2, settings=settings, command=as_own_role(address)) as fleet,
    ):
        term, old = wait_working(fleet)
        (other,) = fleet.others(old)
        wait_until(lambda: able(old) == able(other) == [True, True], "both servers can use the database")
        allow_writes(postgres, old.name, allowed=False)
        Editor(engine, fleet.region).change([endpoint(fleet.region, 1)], who="chaos")
        newer, new = wait_working(fleet, after=term, within=60)
        assert new is other
        assert why_ended(fleet, term, before=newer) == "it could not do a leader's work, and another server can"
        wait_until(lambda: new.says('"endpoint r1-holdfast-w1-eth0'), "the new leader has written the edit", within=60)
        wait_until(lambda: "waiting: database" in why_unable(new, old.name), "the old leader tries and fails")
        refused = new.ask("elector", "step-down", reason="kernel update", to=old.name).error
        assert "cannot take over" in refused
        allow_writes(postgres, old.name, allowed=True)
        wait_until(lambda: why_unable(new, old.name).startswith("it rests for"), "the old leader only rests", within=60)


def as_own_role(address: str) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return a command that connects each server to the database as a role of its own name."""

    def started(settings: Sequence[str]) -> Sequence[str]:
        (name,) = (one.partition("=")[2] for one in settings if one.startswith("server.name="))
        own = address.replace("postgresql+psycopg://holdfast@", f"postgresql://{name}@")
        return impatient([*settings, f"inventory.database={own}"])

    return started


def allow_writes(postgres: Postgres, role: str, *, allowed: bool) -> None:
    """Make the database read-only for one role, or end that; its sessions end, as in a failover."""
    postgres.query("postgres", f"ALTER ROLE {role} SET default_transaction_read_only = {'off' if allowed else 'on'}")
    postgres.query("postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
