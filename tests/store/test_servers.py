"""List of servers: reports and leader key put together."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.cli.get.servers import render
from holdfast.model.control.leader import Leader
from holdfast.model.control.server import Server, WorkerHealth
from holdfast.store.servers import servers_seen


def server(*, stands: bool = True, healthy: bool = True, pauses: tuple[str, ...] = ()) -> Server:
    return Server(
        host="h",
        pid=1,
        boot_id="b",
        pid_namespace="n",
        version="0.3.1",
        since=datetime(2026, 1, 1, tzinfo=UTC),
        database=True,
        stands=stands,
        rests="" if stands else "an operator paused it",
        pauses=pauses,
        workers={"syncer": WorkerHealth(healthy, "ok" if healthy else "waiting: database")},
    )


def test_the_leader_has_its_term_and_every_server_its_reason() -> None:
    paused = server(stands=False, pauses=("server by alice: “rack move”",))
    seen = servers_seen(
        {"ctl-2": server(healthy=False), "ctl-1": server(), "ctl-3": paused}, Leader("ctl-1", "h", 1), 7
    )
    assert render(seen) == [
        "SERVER  ROLE            TERM  VERSION         LAG  CAN LEAD",
        "ctl-1   leader             7  0.3.1         0.0 s  yes",
        "ctl-2   follower           –  0.3.1         0.0 s  no: syncer waiting: database",
        "ctl-3   follower           –  0.3.1         0.0 s  no: an operator paused it",
        "        paused: server by alice: “rack move”",
    ]


def test_a_leader_whose_registration_has_expired_is_listed() -> None:
    (seen,) = servers_seen({}, Leader("ctl-1", "host-1", 1), 7)
    assert (seen.name, seen.role, seen.term, seen.able) == ("ctl-1", "leader", 7, False)
    assert "its registration has expired" in seen.why_not


def test_without_servers_the_table_says_so() -> None:
    assert render([]) == ["no server is registered"]


def test_a_leader_that_misses_renewals_is_listed_with_the_age_of_its_term() -> None:
    seen = servers_seen({"ctl-1": server()}, Leader("ctl-1", "h", 1), 7, unrenewed_s=9.0)
    assert render(seen)[2:] == ["        term 7 not renewed for 9.0 s"]
