"""The status page: its shape to the letter, and what it makes of exit codes."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.common.format import paint
from holdfast.cli.common.terms import TermOnBoard
from holdfast.cli.status import page
from holdfast.cli.status.page import document, exit_code, is_healthy, render
from holdfast.cli.status.problems import problems
from holdfast.cli.status.view import StatusView, read_status
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.pulse import Pulse
from holdfast.runtime.daemon.report import DaemonReport, WorkerRecord, WorkerReport
from holdfast.server.election.views import ElectorView, StoreSeen
from holdfast.testing.fault import fault

NOW = datetime(2026, 3, 1, 3, 7, 9, tzinfo=UTC)


def worker(name: str, **changed: Any) -> WorkerReport:
    well: dict[str, Any] = {
        "pid": 7,
        "phase": "running",
        "verdict": "healthy",
        "state": "ok",
        "pulse_s": 0.4,
        "backlog": 0,
        "lag_s": 0.0,
        "restarts": 0,
        "crash_looping": False,
    }
    return WorkerReport(name=name, **{**well, **changed})


def daemon(*workers: WorkerReport, role: str = "agent") -> DaemonReport:
    return DaemonReport(role, "1.2.3", 4_711, 0.6, list(workers))


SEED = worker(
    "seed", pid=None, phase="completed", verdict="completed", state="completed", pulse_s=None, backlog=None, lag_s=None
)
BRAKE = {
    "key": "10.28.1.0/26",
    "kind": "routes",
    "op": "delete",
    "since_s": 214.2,
    "attempts": 0,
    "error": None,
    "gate": "brake",
    "reason": "would delete 34,812 of 40,000 routes (87.0%): less than half would stay",
    "opens": "holdfast gate allow routes/brake --once --reason …",
}
HEALTHY = StatusView([daemon(SEED, worker("routes", backlog=12_345, lag_s=2.04))])
TROUBLED = StatusView(
    [
        daemon(
            worker("routes", state="held: brake", backlog=34_812, lag_s=214.2),
            worker("peers", state="waiting: list of wanted routes", verdict="waiting", backlog=3, lag_s=7_500.0),
            worker(
                "reporter",
                pid=None,
                phase="due",
                verdict="starting",
                state="crash-looping",
                pulse_s=None,
                backlog=None,
                lag_s=None,
                restarts=7,
                crash_looping=True,
                trouble="exited",
                evidence="exit code 1",
                trouble_ago_s=3.2,
            ),
            worker(
                "prober",
                phase="ending",
                verdict="hung",
                state="ending",
                pulse_s=12.0,
                restarts=1,
                trouble="hung",
                evidence="no heartbeat for 11.2 s",
                trouble_ago_s=1.1,
            ),
            worker("mender", restarts=1, trouble="stalled", trouble_ago_s=219_600.0, back_after_s=1.6),
            worker("auditor", verdict="overdue", state="failing: 2", backlog=2),
        )
    ],
    held={"agent/routes": [BRAKE, {**BRAKE, "key": "10.28.2.0/26", "since_s": 12.0}]},
)

HEALTHY_PAGE = """\
holdfast 1.2.3   agent   03:07:09Z

NEEDS YOU  0        handled by itself  0

DAEMON              PULSE  STATE                   BACKLOG     LAG  RESTARTS 24h
agent               0.4 s  ok                       12,345   2.0 s  0
"""

TROUBLED_PAGE = """\
holdfast 1.2.3   agent   03:07:09Z

NEEDS YOU  4        handled by itself  2
 1 routes           held by brake for 00:03:34: would delete 34,812 of 40,000 routes (87.0%): less than half would stay
                    To inspect: holdfast plan routes
                    To release: holdfast gate allow routes/brake --once --reason …
 2 reporter         crash-looping, 7 restarts in 24 h; last failure: exited (exit code 1)
                    To inspect: holdfast history worker/reporter
 3 auditor          objects failing: 2
                    To inspect: holdfast plan auditor
 4 auditor          no full comparison finished within three intervals
                    To inspect: holdfast plan auditor
 · peers            waiting: list of wanted routes; programmed state stays
 · prober           hung (no heartbeat for 11.2 s); it is being restarted

DAEMON              PULSE  STATE                   BACKLOG     LAG  RESTARTS 24h
agent
  routes            0.4 s  held: brake              34,812   3m34s  0
  peers             0.4 s  waiting: list of …            3   2h05m  0
  reporter              –  crash-looping                 –       –  7
                           exited 3.2 s ago
  prober           12.0 s  no pulse, was ending          0   0.0 s  1
                           hung 1.1 s ago
  mender            0.4 s  ok                            0   0.0 s  1
                           stalled 2d13h ago, back in 1.6 s
  auditor           0.4 s  failing: 2                    2   0.0 s  0
"""


def test_a_healthy_page_to_the_letter() -> None:
    assert render(HEALTHY, NOW) == HEALTHY_PAGE


def test_a_page_with_problems_to_the_letter() -> None:
    assert render(TROUBLED, NOW) == TROUBLED_PAGE


def test_sentences_wrap_at_the_width_of_the_terminal_and_commands_do_not() -> None:
    lines = render(TROUBLED, NOW, 80).splitlines()
    assert lines[3:7] == [
        " 1 routes           held by brake for 00:03:34: would delete 34,812 of 40,000",
        "                    routes (87.0%): less than half would stay",
        "                    To inspect: holdfast plan routes",
        "                    To release: holdfast gate allow routes/brake --once --reason …",
    ]


ETCD = StoreSeen("3.5.16", members=3, answering=3, revision=9_184_467, round_trip_ms=2.2)
LEADS = ElectorView(
    "ctl-1", "leading", "ctl-1", 9_180_022, 219_600.0, 13.21, 15.0, {"ctl-3": True, "ctl-2": False}, store=ETCD
)
FOLLOWS = ElectorView("ctl-2", "following", "ctl-1", 0, 60.0, 0.0, 15.0, {"ctl-2": True}, store=ETCD)
SERVER = [daemon(worker("elector", state="following ctl-1", backlog=None, lag_s=None), role="server")]


def lines_of(server: ElectorView) -> list[str]:
    return [
        line
        for line in render(StatusView(SERVER, servers=[server]), NOW).splitlines()
        if line.startswith(("STORE", "LEAD"))
    ]


@pytest.mark.parametrize(
    ("answering", "members", "sentence"),
    [
        (2, 3, "1 of 3 members of etcd does not answer; if 1 more member is lost, nothing can be written"),
        (4, 5, "1 of 5 members of etcd does not answer; if 2 more members are lost, nothing can be written"),
        (1, 3, "2 of 3 members of etcd do not answer; nothing can be written"),
    ],
)
def test_a_lost_member_of_etcd_needs_action_although_all_goes_on(answering: int, members: int, sentence: str) -> None:
    store = msgspec.structs.replace(ETCD, answering=answering, members=members)
    view = StatusView(SERVER, servers=[msgspec.structs.replace(LEADS, store=store)])
    assert [problem.sentence for problem in problems(view)] == [sentence]
    assert exit_code(view) == 1


def test_store_and_leader_to_the_letter() -> None:
    store = "STORE    etcd 3.5.16   3 of 3 members   rev 9,184,467   round trip 2 ms"
    led = "LEADER   ctl-1   term 9180022   2d13h   lease 13.2 of 15 s   followers: ctl-2 not ready, ctl-3 ready"
    assert lines_of(LEADS) == [store, led]
    assert lines_of(FOLLOWS) == [store, "LEADER   ctl-1   seen from ctl-2 (following)   followers: ctl-2 ready"]


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        (msgspec.structs.replace(LEADS, last_term=7, confirmed_s=2.0), ""),
        (msgspec.structs.replace(LEADS, last_term=7, confirmed_s=8.0), "   term 7 not renewed for 8.0 s"),
        (msgspec.structs.replace(LEADS, leader="", last_term=7, confirmed_s=75.0), "   term 7 not renewed for 1m15s"),
        (msgspec.structs.replace(FOLLOWS, last_term=7, confirmed_s=75.0), "   as of 1m15s ago"),
    ],
)
def test_leadership_that_the_store_has_not_confirmed_lately_is_shown_with_its_age(
    server: ElectorView, shown: str
) -> None:
    without = lines_of(msgspec.structs.replace(server, confirmed_s=None))[1]
    assert lines_of(server)[1] == without + shown


def test_the_term_of_a_frozen_elector_is_shown_with_its_age() -> None:
    stale = {"ctl-1": TermOnBoard("ctl-1", 7, 12.34)}
    page = render(StatusView(SERVER, servers=[FOLLOWS], terms=stale), NOW)
    assert " · ctl-1            the elector does not answer; term 7 is stale for 12.3 s: it writes nothing\n" in page
    alone = render(StatusView(SERVER, terms=stale), NOW)
    assert "\nLEADER   ctl-1 led last, term 7 stale for 12.3 s\n" in alone


def test_a_fleet_without_a_leader_needs_action() -> None:
    view = StatusView(SERVER, servers=[msgspec.structs.replace(FOLLOWS, leader="")])
    assert exit_code(view) == 1
    assert "no leader: nothing is written until a server is elected" in render(view, NOW)


def test_a_server_that_is_refused_needs_action_and_says_why() -> None:
    taken = "the name ctl-2 is taken by r1 (pid 7): give this server another server.name"
    view = StatusView(SERVER, servers=[msgspec.structs.replace(FOLLOWS, refused=taken)])
    assert exit_code(view) == 1
    assert f" 1 ctl-2            not a candidate for leader: {taken}\n" in render(view, NOW)


def test_a_server_paused_without_an_end_needs_action() -> None:
    view = StatusView(SERVER, servers=[msgspec.structs.replace(FOLLOWS, paused="alice: “not until 04:00Z”")])
    assert exit_code(view) == 1
    assert "paused by alice: “not until 04:00Z”; it has no end" in render(view, NOW)


def test_a_paused_server_is_shown_but_needs_no_action() -> None:
    view = StatusView(SERVER, servers=[msgspec.structs.replace(FOLLOWS, paused="alice until 03:30:00Z: “disk swap”")])
    assert exit_code(view) == 0
    assert (
        " · ctl-2            not a candidate for leader: paused by alice until 03:30:00Z: “disk swap”\n"
        "                    To release: holdfast resume server ctl-2\n"
    ) in render(view, NOW)


def test_healthy_is_0_and_needing_action_is_1() -> None:
    assert (exit_code(HEALTHY), exit_code(TROUBLED)) == (0, 1)


STARTING = daemon(worker("elector", state="starting", pid=None, pulse_s=None))
LAB = daemon(worker("etcd"), worker("ctl-1"), worker("client"), role="lab")
NOT_YET_KNOWN = {
    "starting": (StatusView([STARTING]), " · elector          starting\n"),
    "waiting": (
        StatusView([daemon(worker("routes", state="waiting: database", verdict="waiting"))]),
        " · routes           waiting: database; programmed state stays\n",
    ),
    "restarting": (
        StatusView([daemon(worker("routes", phase="due", state="restarting", trouble="exited", evidence="signal 9"))]),
        " · routes           exited (signal 9); it is being restarted\n",
    ),
    "store away": (
        StatusView(SERVER, servers=[msgspec.structs.replace(FOLLOWS, store=None, store_error="no answer in 2 s")]),
        " · store            does not answer ctl-2: no answer in 2 s; programmed state stays\n",
    ),
    "frozen": (
        StatusView([daemon(worker("routes", pulse_s=4.0))]),
        " · routes           agent: no pulse for 4.0 s; it is restarted if that goes on\n",
    ),
    "no answer": (
        StatusView(HEALTHY.reports, unanswered={"agent/routes": "closed the connection"}),
        " · routes           agent/routes does not answer: closed the connection\n",
    ),
    "lab starts": (StatusView([LAB]), " · ctl-1            starting: its daemon has no control socket yet\n"),
}


@fault(
    "C64",
    without="holdfast.cli.status.page:exit_code",
    returns=0,
    sees=(AssertionError, r"codes == dict.fromkeys\(NOT_YET_KNOWN, 3\)"),
)
def test_C64_health_that_is_not_known_is_never_0() -> None:
    codes = {name: page.exit_code(view) for name, (view, _shown) in NOT_YET_KNOWN.items()}
    assert codes == dict.fromkeys(NOT_YET_KNOWN, 3)


@fault(
    "C64",
    without="holdfast.cli.status.page:_deletes",
    returns=[],
    sees=(AssertionError, '"DELETED in the last hour endpoints 34,812 routes 40 hosts 3"'),
)
def test_C64_deletes_of_the_last_hour_are_shown_although_all_is_well_now() -> None:
    deleted = {"ctl-1": {"endpoints": 34_812, "hosts": 3}, **{f"r1-0{n}": {"routes": 10} for n in range(1, 5)}}
    shown = render(dataclasses.replace(HEALTHY, deletes=deleted), NOW, 80)
    assert "DELETED  in the last hour   endpoints 34,812   routes 40   hosts 3" in shown
    assert "by ctl-1, r1-01, r1-02, …   look: holdfast history" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(("view", "shown"), NOT_YET_KNOWN.values(), ids=NOT_YET_KNOWN)
def test_health_that_is_not_known_is_3_and_is_shown(view: StatusView, shown: str) -> None:
    assert exit_code(view) == 3
    assert not is_healthy(view)
    assert shown in render(view, NOW)


def test_only_known_health_ends_the_wait() -> None:
    assert [is_healthy(view) for view in (HEALTHY, TROUBLED)] == [True, False]


def test_a_row_says_leading_only_for_the_term_that_leads() -> None:
    def row(view: StatusView) -> str:
        return next(line for line in render(view, NOW).splitlines() if "elector" in line or line.startswith("ctl-1 "))

    elector = worker("elector", state="leading", backlog=None, lag_s=None)
    here = [daemon(elector, role="ctl-1")]
    assert "  leading  " in row(StatusView(here, servers=[LEADS]))
    newer = msgspec.structs.replace(LEADS, name="ctl-2", leader="ctl-2", term=9_180_900)
    assert "  deposed by 9180900" in row(StatusView(here, servers=[LEADS, newer]))
    unrenewed = msgspec.structs.replace(LEADS, confirmed_s=20.0)
    assert "  not renewed 20.0 s" in row(StatusView(here, servers=[unrenewed]))
    stale = StatusView(here, servers=[newer], terms={"ctl-1": TermOnBoard("ctl-1", 7, 12.3)})
    assert "  not renewed 12.3 s" in table_row(stale)
    frozen = StatusView([daemon(msgspec.structs.replace(elector, pulse_s=9.0), role="ctl-1")], servers=[LEADS])
    assert "  no pulse, was leading" in table_row(frozen)


def table_row(view: StatusView) -> str:
    return next(line for line in render(view, NOW).splitlines() if line.startswith(("  elector", "ctl-1/elector")))


def test_json_has_the_problems_with_the_commands_to_run() -> None:
    found = document(TROUBLED)
    assert found["exit_code"] == 1
    assert [one["subject"] for one in found["problems"]] == [one.subject for one in problems(TROUBLED)]
    assert found["problems"][0]["commands"] == {
        "inspect": "holdfast plan routes",
        "release": "holdfast gate allow routes/brake --once --reason …",
        "fix": "",
    }


def test_the_page_of_a_large_fleet_fits_into_80_columns() -> None:
    store = msgspec.structs.replace(ETCD, compacted_ago_s=2_460.0)
    leads = msgspec.structs.replace(LEADS, store=store, fleet="prod-amsterdam", confirmed_s=9.0, last_term=9_180_022)
    view = StatusView(TROUBLED.reports, TROUBLED.held, servers=[leads])
    commands = ("To inspect", "To release", "To fix")
    lines = [line for line in render(view, NOW, 80).splitlines() if not line.strip().startswith(commands)]
    assert [line for line in lines if len(line) > 80] == []


def test_colours_change_nothing_else() -> None:
    page = render(TROUBLED, NOW, 80, paint)
    assert click.unstyle(page) == render(TROUBLED, NOW, 80)
    assert click.style("1 routes          ", fg="red") in page


def test_a_wait_of_more_than_a_minute_needs_action() -> None:
    waits = worker("routes", state="waiting: database", verdict="waiting", waiting_s=61.0)
    view = StatusView([daemon(waits)])
    assert exit_code(view) == 1
    assert render(view, NOW).splitlines()[2:5] == [
        "NEEDS YOU  1        handled by itself  0",
        " 1 routes           waiting: database (for 00:01:01); programmed state stays",
        "                    To inspect: holdfast doctor",
    ]


def test_a_supervisor_that_does_not_answer_is_3_and_is_the_first_problem() -> None:
    view = StatusView(TROUBLED.reports, TROUBLED.held, silent=["agent"])
    assert exit_code(view) == 3
    assert render(view, NOW).splitlines()[3] == (
        " 1 agent            the supervisor (pid 4711) does not answer, last pulse 0.6 s ago; "
        "its workers exit without it"
    )


def test_no_daemon_is_3_with_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "--runtime", str(tmp_path)])
    assert (result.exit_code, result.output) == (
        3,
        f"Error: no Holdfast daemon is running in {tmp_path}: start one with holdfast lab up, or set --runtime DIR\n",
    )


@pytest.mark.parametrize("content", [b"", b"rubbish"])
def test_a_daemon_without_socket_and_board_is_3(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "agent.sock").touch()
    (tmp_path / "agent.board").write_bytes(content)
    result = CliRunner().invoke(main, ["status", "--runtime", str(tmp_path)])
    assert result.exit_code == 3
    assert result.output.startswith("Error: ")
    assert "Traceback" not in result.output


def test_a_killed_daemon_is_shown_as_dead_and_its_workers_without_state(tmp_path: Path) -> None:
    died = subprocess.Popen(["true"])
    died.wait()
    board = Board.create(tmp_path / "server.board", ["supervisor", "elector", "elector/record"])
    now = SystemClock().now()
    board.cell("supervisor", Pulse).write(Pulse(pid=died.pid, beat=now))
    board.cell("elector", Pulse).write(Pulse(pid=died.pid, beat=now, state="leading"))
    board.cell("elector/record", WorkerRecord).write(WorkerRecord(phase="running", verdict="healthy"))
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "server.sock"))
    page = render(asyncio.run(read_status(tmp_path)), NOW)
    assert f"the supervisor (pid {died.pid}) died, and its workers with it" in page
    assert "leading" not in page


def test_the_first_line_names_the_fleet_and_the_server_whose_view_it_is() -> None:
    view = StatusView(SERVER, servers=[msgspec.structs.replace(FOLLOWS, fleet="prod-ams")])
    first = render(view, NOW).splitlines()[0]
    assert first.endswith("Z   seen from ctl-2 (following)")
    assert "   fleet prod-ams   " in first


def test_an_etcd_that_is_away_is_one_problem_however_many_workers_wait() -> None:
    waits = worker("reporter", state="waiting: store", waiting_s=9.0)
    agents = [daemon(worker("peers"), waits, role=f"r{number}") for number in range(1, 7)]
    error = "store is unreachable: http://[::1]:2379 does not answer in time"
    servers = [
        msgspec.structs.replace(one, store=None, store_error=error, phase="following", leader="ctl-3")
        for one in (LEADS, FOLLOWS)
    ]
    view = StatusView(agents, servers=servers)
    found = problems(view)
    assert [one.subject for one in found] == ["store", "store"]
    assert found[0].sentence == f"does not answer ctl-1, ctl-2: {error}; programmed state stays"
    assert found[1].sentence == (
        "6 workers wait for it for up to 00:00:09: r1/reporter, r2/reporter, r3/reporter, r4/reporter, …; "
        "programmed state stays"
    )
    assert not any(one.known for one in found)
    assert exit_code(view) == 3
    rows = [line for line in render(view, NOW).splitlines() if line.startswith("r")]
    assert [row.split()[0] for row in rows] == [f"r{number}/reporter" for number in range(1, 7)], "one line each"
