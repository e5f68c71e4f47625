"""Scenes of leadership on one lab of real processes, and the output when a promise is broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.lab.scenes import registry as scenes
from holdfast.lab.scenes.stage import Broken, Lab, Say
from holdfast.testing.real.processes import children
from tests.lab.harness import broken, needs_etcd


@needs_etcd
def test_a_tree_has_all_processes_of_a_daemon(lab: Path) -> None:
    supervisor, *workers = Lab(lab).tree("ctl-1")
    assert sorted(workers) == sorted(children(supervisor))


@needs_etcd
def test_a_killed_leader_is_followed_by_another_and_comes_back(lab: Path) -> None:
    result = broken(lab, "leader-kill")
    assert result.exit_code == 0, result.output
    assert re.search(r"killed (ctl-\d), leader of term \d+: 6 processes, SIGKILL", result.output)
    assert re.search(r"ctl-\d leads after \d+\.\d\d s, term \d+", result.output)
    assert "was restarted and is back" in result.output


@needs_etcd
def test_the_writes_of_a_leader_that_was_frozen_are_refused_when_it_wakes(lab: Path) -> None:
    result = broken(lab, "leader-freeze", "--seconds", "8")
    assert result.exit_code == 0, result.output
    # Whether it tries depends on where it was frozen: just before a write, or just before a look at its lease.
    tried = r"(1 write|([2-9]|[1-9]\d+) writes), 0 accepted: term \d+ is over"
    outcome = rf"({tried}|0 writes, 0 accepted: it checked its lease first)"
    assert re.search(rf"woke after \d+ s and tried {outcome}", result.output)


@needs_etcd
def test_no_server_restarts_because_etcd_was_killed(lab: Path) -> None:
    result = broken(lab, "etcd-restart")
    assert result.exit_code == 0, result.output
    assert "on the same data" in result.output
    assert "the promise was kept" in result.output


@needs_etcd
def test_a_server_explains_why_it_does_not_lead(lab: Path) -> None:
    def holdfast(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--runtime", str(lab / "run")])

    assert holdfast("pause", "server", "ctl-1", "--reason", "disk swap").exit_code == 0
    explained = holdfast("explain", "server", "ctl-1")
    assert holdfast("resume", "server", "ctl-1").exit_code == 0
    assert explained.exit_code == 0, explained.output
    assert explained.output.startswith("ctl-1 does not lead")
    assert re.search(r"PAUSED +by \S+: “disk swap”\n +To release: holdfast resume server ctl-1", explained.output)
    assert re.search(r"HISTORY .* asked for pause of server ctl-1: “disk swap”", explained.output)
    unknown = holdfast("explain", "server", "ctl-9")
    assert unknown.output == ("Error: no server ctl-9 is running on this machine; running: ctl-1, ctl-2\n")


def test_without_a_lab_it_says_how_to_start_one(tmp_path: Path) -> None:
    result = broken(tmp_path, "leader-kill")
    assert result.exit_code == 1
    assert "start one with make up, or use --start" in result.output


def test_a_broken_promise_is_one_sentence_and_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(lab: Lab, say: Say, seconds: float) -> None:
        say("did something")
        raise Broken("the promise was broken: no write of an old term is accepted")

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lab.sock").touch()
    monkeypatch.setitem(scenes.SCENES, "leader-kill", breaks)
    result = broken(tmp_path, "leader-kill")
    assert result.exit_code == 1
    assert "the promise was broken: no write of an old term is accepted" in result.output
    assert "the promise was kept" not in result.output
