"""Writes into Neutron: port by port, and heartbeats of agents under the fence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, make_url, select, text

from holdfast.inventory.api import DatabaseAway, Fence
from holdfast.inventory.sql.engine import open_engine
from holdfast.inventory.sql.fence import raise_fence
from holdfast.inventory.sql.trial import try_database
from holdfast.model.base import codec
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS
from holdfast.model.fleet import observed
from holdfast.model.fleet.observed import AgentSeen
from holdfast.openstack.agent_type import AGENT_TYPE
from holdfast.openstack.observed import NeutronObserved, refusals, without
from holdfast.openstack.tables import AGENTS, CONTROL, METADATA
from holdfast.store.api import Deposed

REGION = Region(openstack=True)
OLD = datetime(2026, 11, 18, 8, 0)  # noqa: DTZ001 -- as Neutron stores it
TERM = Fence(REGION.segment, 1, 70)


class Plugin:
    """Neutron's plugin, of which heartbeats need one setting."""

    agent_down_time = 75

    def register_agent(self, host: str) -> None:
        raise NotImplementedError

    def set_port_status(self, port: str, host: str, status: str) -> bool:
        raise NotImplementedError


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Holdfast's tables in Neutron's database, and Neutron's agents; SQLite in place of MariaDB."""
    made = open_engine(make_url(f"sqlite:///{tmp_path}/neutron.db"))
    METADATA.create_all(made)
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE agents (id, agent_type, host, heartbeat_timestamp DATETIME)"))
    raise_fence(made, TERM, CONTROL.fence)
    yield made
    made.dispose()


def add_agent(engine: Engine, host: str, *, alive: bool) -> None:
    row = {"key": AGENT_STATUS.key(REGION, host), "kind": observed.AGENT, "doc": codec.encode(AgentSeen(alive))}
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO agents VALUES (:host, :type, :host, :at)"),
            {"host": host, "type": AGENT_TYPE, "at": OLD.isoformat(" ")},
        )
        connection.execute(insert(CONTROL.observed).values(**row, at=OLD.replace(tzinfo=UTC)))


def heartbeats(engine: Engine) -> dict[str, datetime]:
    with engine.connect() as connection:
        found = connection.execute(select(AGENTS.c.host, AGENTS.c.heartbeat_timestamp)).all()
    return {row[0]: datetime.fromisoformat(row[1]) for row in found}


def test_an_agent_that_counts_as_alive_keeps_a_fresh_heartbeat_and_a_dead_one_does_not(engine: Engine) -> None:
    add_agent(engine, "compute-1", alive=True)
    add_agent(engine, "compute-2", alive=False)

    NeutronObserved(engine, REGION, Plugin).keep_fresh(TERM, observed.AGENT)

    fresh = heartbeats(engine)
    assert datetime.now(UTC).replace(tzinfo=None) - fresh["compute-1"] < timedelta(minutes=1)
    assert fresh["compute-2"] == OLD


def test_C28_a_deposed_leader_keeps_no_agent_alive(engine: Engine) -> None:
    add_agent(engine, "compute-1", alive=True)
    raise_fence(engine, TERM._replace(term=83), CONTROL.fence)

    with pytest.raises(Deposed):
        NeutronObserved(engine, REGION, Plugin).keep_fresh(TERM, observed.AGENT)

    assert heartbeats(engine) == {"compute-1": OLD}


def test_C45_a_follower_tries_neutron_s_database_in_a_table_of_its_own(engine: Engine) -> None:
    try_database(engine, "ctl-1", CONTROL)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM holdfast_trials")).scalar() == 0
        connection.execute(text("DROP TABLE holdfast_trials"))

    with pytest.raises(DatabaseAway):
        try_database(engine, "ctl-1", CONTROL)


def test_a_port_that_neutron_refuses_does_not_fail_its_batch() -> None:
    written: list[bytes] = []

    def write(key: bytes) -> None:
        if key == b"bad":
            raise LookupError("no such port")
        written.append(key)

    refused = refusals([b"a", b"bad", b"z"], write)

    assert refused == {b"bad": "Neutron refused it: LookupError: no such port"}
    assert written == [b"a", b"z"]


def test_a_database_that_is_away_ends_the_batch() -> None:
    tried: list[bytes] = []

    def write(key: bytes) -> None:
        tried.append(key)
        raise DatabaseAway("connection lost")

    with pytest.raises(DatabaseAway):
        refusals([b"a", b"b"], write)

    assert tried == [b"a"]


def test_refused_keys_are_left_out_of_what_is_recorded() -> None:
    assert without({b"up": [b"a", b"bad"], b"down": [b"worse"]}, {b"bad", b"worse"}) == {b"up": [b"a"]}
