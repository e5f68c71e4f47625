"""`holdfast pause fleet` on real daemons: obeyed over a restart without etcd, and everything flows after `resume`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.daemon import PATIENCE
from holdfast.testing.real.etcd import etcd_cluster
from holdfast.testing.real.fleet import RealFleet, real_fleet
from holdfast.testing.real.processes import wait_until


@pytest.fixture
def small(tmp_path: Path) -> Iterator[RealFleet]:
    """One server and one agent, with one workload."""
    with or_skip(etcd_cluster(1)) as cluster, real_fleet(cluster, f"sqlite:///{tmp_path}/i.db", hosts=1) as fleet:
        fleet.place({7: 1})
        fleet.wait_settled()
        yield fleet


def holdfast(fleet: RealFleet, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--runtime", str(fleet.runtime)])


def worker(fleet: RealFleet, daemon: str, name: str) -> dict[str, Any]:
    """The line of a worker in `holdfast status`; empty while it cannot be shown."""
    shown = holdfast(fleet, "status", "-o", "json")
    found = json.loads(shown.stdout)["daemons"] if shown.stdout.startswith("{") else []
    return next((w for one in found if one["role"] == daemon for w in one["workers"] if w["name"] == name), {})


def paused(fleet: RealFleet) -> list[str]:
    shown = holdfast(fleet, "status", "-o", "json")
    return [one["why"] for one in json.loads(shown.stdout)["intents"]] if shown.stdout.startswith("{") else []


def test_it_holds_everything_over_a_restart_with_etcd_away_until_it_is_resumed(small: RealFleet) -> None:
    etcd, agent, remembered = small.cluster.members[0], small.agents["h1"], small.home / "state" / "h1" / "intents"
    said = holdfast(small, "pause", "fleet", "--for", "1h", "--reason", "moving racks")
    assert said.exit_code == 0, said.output
    wait_until(lambda: list(remembered.glob("*")) != [], "the agent remembers the pause", within=PATIENCE)
    agent.kill_tree()
    etcd.kill()
    small.place({7: None, 8: 1})
    agent.start()
    wait_until(
        lambda: worker(small, "h1", "peers").get("state") == "waiting: a complete list",
        "the agent runs without etcd",
        within=PATIENCE,
    )
    assert paused(small) == ["moving racks"]
    etcd.start()
    wait_until(lambda: worker(small, "h1", "peers").get("state") == "paused", "the agent obeys", within=PATIENCE)
    wait_until(lambda: worker(small, "s1", "syncer").get("state") == "held: intent", "it is held", within=PATIENCE)
    assert len(small.wrong_routes()) == 2, "one to delete and one to create, and neither is done"
    status = holdfast(small, "status")
    assert status.exit_code == 0, "it has an end, so nobody has to do anything"
    assert "paused by" in status.stdout
    assert "To release: holdfast resume fleet" in status.stdout
    assert holdfast(small, "resume", "fleet").exit_code == 0
    small.wait_settled()
