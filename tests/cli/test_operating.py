"""An operator at work, end to end on real processes: edit what is wanted, pause, allow, break things, look."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.lab.scenes.agent import LabAgent
from holdfast.lab.scenes.stage import Lab
from holdfast.runtime.daemon.process import descendants
from holdfast.testing.real.processes import Unavailable, tool
from tests.cli.harness import ALL, Routes, running
from tests.cli.route_worker import wanted_file
from tests.runtime.daemon.harness import alive


def some(count: int) -> dict[str, str]:
    return dict(list(ALL.items())[:count])


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routes]:
    with running(tmp_path_factory.mktemp("lab with spaces")) as one:
        yield one


@pytest.fixture
def fresh_lab(tmp_path: Path) -> Iterator[Routes]:
    """A daemon of its own, whose brake has counted no delete yet."""
    with running(tmp_path) as one:
        yield one


@pytest.fixture
def lab(module_lab: Routes) -> Routes:
    """The daemon with all its routes in place and nothing held, whatever the test before it did."""
    module_lab.want(ALL)
    module_lab.until_routes_are(ALL)
    module_lab.until_state_is("ok")
    return module_lab


def test_a_fresh_daemon_is_healthy(lab: Routes) -> None:
    lab.until(lambda: lab.holdfast("status").exit_code == 0, "the first list is written")
    result = lab.holdfast("status", "--wait")
    assert result.exit_code == 0, result.output
    assert "NEEDS YOU  0" in result.stdout
    assert "\nlab  " in result.stdout


def test_the_dataplane_follows_the_list(lab: Routes) -> None:
    wanted = {**ALL, "10.28.1.0/26": "192.0.2.99", "2001:db8::/64": "2001:db8::1"}
    del wanted["10.28.12.0/26"]
    lab.want(wanted)
    lab.until_routes_are(wanted)
    for done in ("replace 10.28.1.0/26", "create 2001:db8::/64", "delete 10.28.12.0/26"):
        lab.until_recorded(f"{done}: applied")
    assert "delete 10.28.12.0/26" in lab.holdfast("history", "10.28.12.0/26").stdout


def test_plan_without_a_worker_shows_all_that_plan(lab: Routes) -> None:
    shown = lab.holdfast("plan")
    assert (shown.exit_code, "routes: in sync" in shown.output) == (0, True), shown.output
    assert json.loads(lab.holdfast("plan", "-o", "json").stdout)["routes"]["objects"] == []


def test_the_events_of_a_document_are_those_of_the_page(lab: Routes) -> None:
    documents = json.loads(lab.holdfast("events", "--worker", "routes", "-o", "json").stdout)
    lines = lab.holdfast("events", "--worker", "routes").stdout.splitlines()
    assert documents
    assert [one["sentence"] in line for one, line in zip(documents, lines, strict=True)] == [True] * len(documents)


def test_dropping_nine_of_twelve_is_held_until_an_operator_allows_it(fresh_lab: Routes) -> None:
    lab = fresh_lab
    lab.want(some(3))
    lab.until_state_is("held: brake")
    assert lab.dataplane() == ALL
    result = lab.holdfast("status")
    assert result.exit_code == 1
    assert "would delete 9 of 12 routes (75.0%): less than half would stay" in result.stdout
    assert "To release: holdfast gate allow routes/brake --once --reason …" in result.stdout
    plan = lab.holdfast("plan", "routes")
    assert plan.stdout.count("held by brake") == 9
    assert "To release: holdfast gate allow routes/brake --once --reason …" in plan.stdout
    assert json.loads(lab.holdfast("plan", "routes", "-o", "json").stdout)["gates"] == {"brake": 9}

    refused = lab.holdfast("gate", "allow", "routes/brake", "--once", "--reason", "x", confirm="n\n")
    assert (refused.exit_code, "release 9 changes?" in refused.output) == (1, True)
    assert lab.dataplane() == ALL

    allowed = lab.holdfast("gate", "allow", "routes/brake", "--once", "--yes", "--reason", "racks 4 to 12 are gone")
    assert (allowed.exit_code, allowed.stderr) == (0, "9 held deletes go through once\n")
    lab.until_routes_are(some(3))
    lab.until_state_is("ok")
    assert "let 9 held deletes through once: “racks 4 to 12 are gone”" in lab.holdfast("history").stdout
    again = lab.holdfast("gate", "allow", "routes/brake", "--once", "--yes", "--reason", "x")
    assert (again.exit_code, "holds nothing, so there is nothing to allow" in again.output) == (4, True)


def test_an_allow_for_a_time_is_listed_and_taken_back(lab: Routes) -> None:
    words = ("gate", "allow", "routes/brake", "--for", "5m", "--yes", "--reason", "racks 4 to 12 go")
    assert lab.holdfast(*words).exit_code == 0
    listed = lab.holdfast("gate", "list").stdout
    assert "“racks 4 to 12 go”\n    To take it back: holdfast gate revoke routes/brake\n" in listed
    assert lab.holdfast("gate", "revoke", "routes/brake").stderr == "routes/brake holds mass deletes again\n"
    lab.want(some(3))
    lab.until_state_is("held: brake")
    held = lab.holdfast("gate", "list").stdout  # deletes of the last minute count as well
    assert re.search(r"routes/brake   holds 9: would delete \d+ of \d+ routes", held)
    lab.want(ALL)
    lab.until_state_is("ok")
    assert lab.holdfast("gate", "revoke", "routes/brake").output == "Error: nothing is allowed at routes/brake\n"


def test_a_gate_takes_its_worker_as_a_scope_and_needs_none_where_one_worker_holds(lab: Routes) -> None:
    once = ("--once", "--reason", "x")
    nothing = lab.holdfast("gate", "allow", "brake", *once)
    assert (nothing.exit_code, "no brake holds anything here" in nothing.stderr) == (4, True)
    lab.want(some(3))
    lab.until_state_is("held: brake")
    for words in (("brake",), ("brake", "routes"), ("routes/brake",)):
        shown = lab.holdfast("gate", "allow", *words, *once, confirm="n\n")
        assert (shown.exit_code, "release " in shown.output) == (1, True), words
    twice = lab.holdfast("gate", "allow", "routes/brake", "routes", *once)
    assert (twice.exit_code, "the worker is named twice: give routes/brake, or brake and SCOPE" in twice.stderr) == (
        2,
        True,
    )
    timed = lab.holdfast("gate", "allow", "brake", "routes", "--for", "5m", "--yes", "--reason", "x")
    assert timed.exit_code == 0
    assert lab.holdfast("gate", "revoke", "brake").exit_code == 2
    assert lab.holdfast("gate", "revoke", "brake", "routes").stderr == "routes/brake holds mass deletes again\n"
    lab.want(ALL)
    lab.until_state_is("ok")


def test_an_object_that_is_wanted_again_is_no_longer_held(lab: Routes) -> None:
    lab.want(some(3))
    lab.until_state_is("held: brake")
    lab.want(ALL)
    lab.until_state_is("ok")
    assert lab.dataplane() == ALL


def test_a_pause_survives_a_restart_of_the_worker_and_loses_no_change(lab: Routes) -> None:
    assert "a reason is needed" in lab.holdfast("pause", "worker", "routes", "--reason", " ").output
    assert lab.holdfast("pause", "worker", "routes", "--reason", "maintenance").exit_code == 0
    lab.want({**ALL, "10.28.77.0/26": "192.0.2.77"})
    lab.until_state_is("held: intent")
    pid = lab.pid_of_worker()
    os.kill(pid, signal.SIGKILL)
    lab.until(lambda: lab.pid_of_worker() != pid, "the worker is replaced")
    lab.until_state_is("held: intent")
    assert lab.dataplane() == ALL
    result = lab.holdfast("status")
    assert result.exit_code == 1
    assert "“maintenance”; 1 change waits; it has no end" in result.stdout
    assert "To release: holdfast resume worker routes" in result.stdout
    resumed = lab.holdfast("resume", "worker", "routes")
    assert (resumed.exit_code, resumed.stderr) == (0, "worker routes goes on\n")
    lab.until_routes_are({**ALL, "10.28.77.0/26": "192.0.2.77"})
    assert lab.holdfast("resume", "worker", "routes").output == "Error: worker routes is not paused\n"


def test_a_pause_can_expire(lab: Routes) -> None:
    assert "until" in lab.holdfast("pause", "worker", "routes", "--for", "1s", "--reason", "tea").stderr
    lab.want(some(11))
    lab.until_routes_are(some(11))
    assert lab.holdfast("pause", "worker", "routes", "--for", "soon", "--reason", "tea").exit_code == 2
    assert lab.holdfast("resume", "worker", "routes").output == "Error: worker routes is not paused\n"


@pytest.mark.parametrize(
    "rubbish", ["{", "[]", '{"10.28.1.1/26": "x"}', '{"10.28.1.0/26": 7}', "\x00\x01", '{"a"' * 99]
)
def test_a_malformed_list_is_logged_once_and_the_last_good_list_stays(lab: Routes, rubbish: str) -> None:
    before = lab.said("wanted routes are unreadable; keeping the last good list")
    lab.want(rubbish)
    lab.until(lambda: lab.said("wanted routes are unreadable; keeping the last good list") > before, "it is named")
    time.sleep(0.5)
    assert lab.said("wanted routes are unreadable; keeping the last good list") == before + 1
    assert lab.dataplane() == ALL


def test_a_missing_list_is_waited_for(lab: Routes) -> None:
    wanted_file(lab.state).unlink()

    def waits() -> bool:
        shown = lab.worker()
        told = lab.holdfast("reconcile", "routes").stderr
        return told == "routes compares everything again\n" and shown is not None and "waiting" in shown.state

    lab.until(waits, "it waits")
    assert (shown := lab.worker()) is not None
    assert shown.state == "waiting: list of wanted routes"
    assert lab.dataplane() == ALL
    result = lab.holdfast("status")
    assert result.exit_code == 3  # health is not known while it waits
    assert re.search(r"waiting: list of wanted routes( \(for [\d:]+\))?; programmed state stays", result.stdout)


def test_killing_the_worker_ten_times_quickly_changes_nothing_in_the_dataplane(lab: Routes) -> None:
    before = (lab.state / "dataplane.json").stat().st_mtime_ns
    pid = 0
    for _ in range(10):
        lab.until(lambda last=pid: lab.pid_of_worker() != last, "the worker is replaced")  # type: ignore[misc]
        pid = lab.pid_of_worker()
        os.kill(pid, signal.SIGKILL)
        assert lab.dataplane() == ALL
    lab.until(lambda: lab.pid_of_worker() != pid, "the worker is replaced")
    lab.until_state_is("ok")
    assert (lab.state / "dataplane.json").stat().st_mtime_ns == before
    result = lab.holdfast("status")
    assert (result.exit_code, "crash-looping" in result.stdout) == (1, True)
    assert "To inspect: holdfast history worker/routes" in result.stdout
    assert lab.holdfast("history", "worker/routes").stdout.count("exited (killed by signal 9)") >= 10


def test_a_source_can_be_forgotten(lab: Routes) -> None:
    assert lab.holdfast("source", "forget", "nothing", "--reason", "x").exit_code == 4
    result = lab.holdfast("source", "forget", "file", "--reason", "it will not come back")
    assert (result.exit_code, result.stderr) == (
        0,
        "file counts as complete and empty; what only this source wanted is deleted, subject to the brake\n",
    )


def test_a_reload_is_confirmed(lab: Routes) -> None:
    assert lab.holdfast("config", "reload").stdout == "lab: nothing has changed\n"


def test_unknown_workers_and_gates_are_named(lab: Routes) -> None:
    assert lab.holdfast("pause", "worker", "rutes", "--reason", "x").output == (
        "Error: no worker 'rutes' here: name one of routes\n"
    )
    assert lab.holdfast("gate", "allow", "routes/sync", "--once", "--reason", "x").exit_code == 2
    assert lab.holdfast("gate", "allow", "routes/brake", "--reason", "x").exit_code == 2
    assert lab.holdfast("gate", "allow", "routes/brake", "--once", "--for", "5m", "--reason", "x").exit_code == 2


def test_when_the_supervisor_is_gone_status_reads_the_board_and_exits_with_3(tmp_path: Path) -> None:
    with running(tmp_path) as one:
        one.process.kill()
        one.process.wait()
        result = one.holdfast("status")
        assert result.exit_code == 3
        assert f"the supervisor (pid {one.process.pid}) died, and its workers with it" in result.stdout
        assert one.holdfast("plan", "routes").exit_code == 3


def test_lab_down_ends_a_fleet_and_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole fleet: etcd, servers, and all of their workers."""
    try:
        etcd = tool("etcd")
    except Unavailable:
        pytest.skip("etcd is not installed")
    monkeypatch.setenv("HOLDFAST_ETCD", os.environ.get("HOLDFAST_ETCD", etcd))
    one = Routes(tmp_path, "holdfast.cli", "lab", "up", "--hosts", "2", "--dir", str(tmp_path))
    try:
        one.until(lambda: one.said("Holdfast runs") == 1, "it is up")
        agent = LabAgent(Lab(tmp_path), "r1-02")
        one.until(lambda: agent.is_up(()) and agent.has_programmed(["r1-01", "r1-02"]), "the fleet is complete")
        members = [one.process.pid, *descendants(one.process.pid)]
        assert len(members) > 8
        stopped = CliRunner().invoke(main, ["lab", "down", "--dir", str(tmp_path)])
        assert stopped.exit_code == 0, stopped.output
        assert [pid for pid in members if alive(pid)] == []
        assert one.process.wait(10) == 0
        assert one.said("Traceback") == 0
    finally:
        one.end()
    assert one.holdfast("status").exit_code == 3


def test_workers_are_listed_by_daemon(lab: Routes) -> None:
    assert lab.holdfast("get", "workers", "-o", "name").stdout == "lab/seed\nlab/routes\n"
    (document,) = json.loads(lab.holdfast("get", "worker", "lab/routes", "-o", "json").stdout)
    assert (document["daemon"], document["name"]) == ("lab", "routes")


def test_an_intent_shows_who_and_why_and_its_gate_what_it_holds(lab: Routes) -> None:
    assert lab.holdfast("get", "gates").stderr == "no gate holds anything\n"
    assert lab.holdfast("pause", "worker", "routes", "--reason", "new disk").exit_code == 0
    lab.want(dict(list(ALL.items())[1:]))

    def held() -> bool:
        return "lab/routes/intent" in lab.holdfast("get", "gates").stdout

    lab.until(held, "the pause holds a change")
    (gate,) = json.loads(lab.holdfast("get", "gates", "-o", "json").stdout)
    assert (gate["held"], gate["opens"]) == (1, "holdfast resume worker routes")
    intents = json.loads(lab.holdfast("get", "intents", "-o", "json").stdout)
    assert ("pause", "new disk") in [(one["what"], one["why"]) for one in intents]
    assert lab.holdfast("resume", "worker", "routes").exit_code == 0


def test_workers_are_shown_as_yaml_but_have_no_orphans(lab: Routes) -> None:
    shown = lab.holdfast("get", "workers", "-o", "yaml")
    assert (shown.exit_code, [one["name"] for one in yaml.safe_load(shown.stdout)]) == (0, ["seed", "routes"])
    assert lab.holdfast("get", "workers", "--orphaned").exit_code == 2


def test_names_are_completed_in_the_shell(lab: Routes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PATHS_RUNTIME", str(lab.runtime))
    assert completed("get", "worker", "") == ["routes"]
    assert completed("reconcile", "r") == ["routes"]
    assert completed("pause", "worker", "r") == ["routes"]
    assert completed("reconcile", "x") == []


def test_what_cannot_be_asked_completes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PATHS_RUNTIME", str(tmp_path))
    assert completed("reconcile", "r") == []
    assert completed("explain", "host", "r") == []


def test_names_of_the_inventory_are_completed_by_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that completed its own words started another one, and so on."""
    monkeypatch.setenv("HOLDFAST_PATHS_RUNTIME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_INVENTORY_DATABASE", f"sqlite:///{tmp_path}/inventory.db")
    (tmp_path / "hosts.yaml").write_text(
        "- {kind: host, name: r1}\n- {kind: host, name: r2}\n- {kind: host, name: x}\n"
    )
    for words in (["inventory", "init"], ["apply", "-f", str(tmp_path / "hosts.yaml")]):
        assert CliRunner().invoke(main, words).exit_code == 0
    assert completed("explain", "host", "r") == ["r1", "r2"]
    assert completed("get", "hosts", "x") == ["x"]


def completed(*words: str) -> list[str]:
    """The names that bash is offered for the last word."""
    line = " ".join(["holdfast", *words])
    environ = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    told = CliRunner().invoke(main, [], env=environ, prog_name="holdfast")
    return [one.partition(",")[2] for one in told.stdout.splitlines() if one]
