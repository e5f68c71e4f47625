"""Scenes of the inventory: an emptied database deletes nothing, an unreachable one is waited for."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner, Result

from holdfast.cli import main
from tests.lab.harness import broken, needs_etcd


@needs_etcd
def test_an_emptied_database_deletes_nothing(lab: Path) -> None:
    result = broken(lab, "database-emptied")
    assert result.exit_code == 0, result.output
    assert "no recorded change of the inventory deleted it" in result.output
    assert "To release: holdfast gate allow syncer/witness --once --reason …" in result.output
    assert "has written nothing" in result.output


@needs_etcd
def test_an_unreachable_database_is_waited_for(lab: Path) -> None:
    result = broken(lab, "database-unreachable", "--seconds", "3")
    assert result.exit_code == 0, result.output
    assert "“waiting: database”" in result.output
    assert re.search(r"a change made now is in the store after \d+\.\d\d s", result.output)


@needs_etcd
def test_an_object_of_the_inventory_is_explained_by_the_leader(lab: Path) -> None:
    told = CliRunner().invoke(main, ["explain", "endpoint", "holdfast-web--01-eth0", "--runtime", str(lab / "run")])
    assert told.exit_code == 0, told.output
    assert told.output.startswith("endpoint holdfast-web--01-eth0 is wanted and in the store.")
    assert "leader, identity, sync and intent are open" in told.output


@needs_etcd
def test_a_leader_only_worker_means_the_leaders(lab: Path) -> None:
    def holdfast(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--runtime", str(lab / "run")])

    paused = holdfast("pause", "worker", "syncer", "--reason", "moving house")
    planned = holdfast("plan", "syncer")
    assert paused.stderr == "worker syncer is paused; end it with: holdfast resume worker syncer\n"
    assert (planned.exit_code, planned.stderr) == (0, "everything is in sync\n")
    assert holdfast("resume", "worker", "syncer").stderr == "worker syncer goes on\n"
