"""Scenes of leadership on one lab of real processes, and the output when a promise is broken."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.cli.lab import scene
from holdfast.inventory.changes import WantedObject
from holdfast.lab.fleet import layout, seed
from holdfast.lab.scenes import registry as scenes
from holdfast.lab.scenes.stage import Broken, Lab, Say, Scene, busy, send
from holdfast.testing.real.processes import children, wait_until
from tests.lab.harness import broken, needs_etcd, typed, written


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
    result = typed(lab, written("README.md", "lab break leader-freeze"))
    assert result.returncode == 0, result.stdout
    # Whether it tries depends on where it was frozen: just before a write, or just before a look at its lease.
    tried = r"(1 write|([2-9]|[1-9]\d+) writes), 0 accepted: term \d+ is over"
    outcome = rf"({tried}|0 writes, 0 accepted: it checked its lease first)"
    assert re.search(rf"woke after 12 s and tried {outcome}", result.stdout)


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
    assert unknown.output == "Error: no server ctl-9 is registered; registered: ctl-1, ctl-2\n"


def test_without_a_lab_it_says_how_to_start_one(tmp_path: Path) -> None:
    result = broken(tmp_path, "leader-kill")
    assert result.exit_code == 3
    assert "start one with make up, or use --start" in result.output


@needs_etcd
def test_a_broken_promise_is_one_sentence_and_exit_code_1(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(lab: Lab, say: Say, seconds: float) -> None:
        """Break nothing. And say otherwise."""
        say("did something")
        raise Broken("the promise was broken: no write of an old term is accepted")

    monkeypatch.setitem(scenes.SCENES, "leader-kill", Scene(breaks, "all is well", "0 of everything"))
    result = broken(lab, "leader-kill")
    assert result.exit_code == 1
    assert "the promise was broken: no write of an old term is accepted" in result.output
    assert "the promise was kept" not in result.output
    before = result.output.partition("did something")[0]
    assert "leader-kill: Break nothing." in before
    assert "Promise:  all is well" in before
    assert "Limit:    0 of everything" in before


@needs_etcd
def test_a_scene_leaves_an_unhealthy_lab_alone_and_says_why(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene, "_HEALTHY_WITHIN_S", 1.0)
    operate = CliRunner()
    runtime = ["--runtime", str(lab / "run")]
    leader = Lab(lab).leader()
    assert leader is not None
    assert operate.invoke(main, ["pause", "fleet", "--reason", "a look", *runtime]).exit_code == 0
    try:
        wait_until(lambda: "PAUSED" in operate.invoke(main, ["status", *runtime]).output, "the pause", within=60)
        result = broken(lab, "leader-kill")
    finally:
        assert operate.invoke(main, ["resume", "fleet", *runtime]).exit_code == 0
    assert result.exit_code == 3
    assert "the lab is not healthy, so nothing was broken: " in result.output
    assert "run: holdfast resume fleet" in result.output
    assert "killed ctl-" not in result.output


@needs_etcd
def test_a_scene_ends_when_its_last_edit_is_in_etcd(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the syncer has not seen yet, its brake may hold a moment later, and the next scene would find that."""
    late = seed.endpoint("r1-01", "late-1", "10.28.1.77/32")

    def play(edit: WantedObject) -> tuple[Result, str]:
        async def edits(lab: Lab, say: Say, seconds: float) -> None:
            """Edit the inventory at the very end."""
            seed.change(lab.state, [edit], "a test")

        monkeypatch.setitem(scenes.SCENES, "leader-kill", Scene(edits, "all is well", "0 of everything"))
        return broken(lab, "leader-kill"), Lab(lab).unsynced()

    # The second takes it back as part of a scene, too: a delete that nobody releases would be held for the next ones.
    for edit in (late, seed.deleted(late)):
        result, left = play(edit)
        assert (result.exit_code, left) == (0, ""), result.output


@needs_etcd
def test_a_scene_that_leaves_the_lab_unhealthy_has_broken_its_promise(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(lab: Lab, say: Say, seconds: float) -> None:
        """Freeze a follower for good."""
        leader = lab.leader()
        assert leader is not None
        follower = next(one for one in layout.SERVERS if one != leader[0])
        frozen.extend(lab.tree(follower))
        send(frozen, signal.SIGSTOP)
        monkeypatch.setattr(scene, "_HEALTHY_WITHIN_S", 1.0)

    frozen: list[int] = []
    monkeypatch.setitem(scenes.SCENES, "leader-kill", Scene(forgets, "all is well", "0 of everything"))
    try:
        result = broken(lab, "leader-kill")
    finally:
        send(frozen, signal.SIGCONT)
    assert result.exit_code == 1
    assert "s after the scene: ctl-" in result.output


def test_every_scene_has_a_promise_and_a_limit_in_80_columns() -> None:
    for name, one in scenes.SCENES.items():
        assert one.summary != "."
        lines = scene.introduction(name, one)
        assert max(map(len, lines)) <= 80
        assert sum("Promise:  " in line for line in lines) == sum("Limit:    " in line for line in lines) == 1


def test_a_timeout_on_an_overloaded_machine_says_so() -> None:
    cores = os.cpu_count() or 1
    assert busy(cores) == ""
    assert busy(40 * cores) == (
        f"; this machine is overloaded ({40 * cores} processes want to run on {cores} cores), which may be why"
    )
