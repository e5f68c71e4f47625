"""`holdfast pause fleet` on real daemons: obeyed over a restart without etcd, and everything flows after `resume`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

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


def holdfast(runtime: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--runtime", str(runtime)])


def state(daemon: Path, worker: str) -> str:
    """The state of a worker, from its own daemon alone: the others may be waiting for etcd."""
    shown = holdfast(daemon, "status", "-o", "json")
    found = json.loads(shown.stdout)["daemons"] if shown.stdout.startswith("{") else []
    return next((one["state"] for each in found for one in each["workers"] if one["name"] == worker), shown.output)


def wait_state(daemon: Path, worker: str, wanted: str) -> None:
    """Wait until the worker has that state; else show the page on which it has another one."""
    try:
        wait_until(lambda: state(daemon, worker) == wanted, f"{worker} is {wanted!r}", within=PATIENCE)
    except TimeoutError as late:
        raise AssertionError(f"{late}\n{holdfast(daemon, 'status').output}") from late


def wait_page(daemon: Path, shows: Callable[[Result], bool], what: str) -> Result:
    """Wait until `holdfast status` shows that, and return it; else show the page that does not."""
    pages: list[Result] = []

    def is_shown() -> bool:
        pages.append(holdfast(daemon, "status"))
        return shows(pages[-1])

    try:
        wait_until(is_shown, what, within=PATIENCE)
    except TimeoutError as late:
        raise AssertionError(f"{late}\n{pages[-1].output}") from late
    return pages[-1]


def test_it_holds_everything_over_a_restart_with_etcd_away_until_it_is_resumed(small: RealFleet) -> None:
    etcd, agent, remembered = small.cluster.members[0], small.agents["h1"], small.home / "state" / "h1" / "intents"
    host, server = small.runtime / "h1", small.runtime / "s1"
    said = holdfast(server, "pause", "fleet", "--for", "1h", "--reason", "moving racks")
    assert said.exit_code == 0, said.output
    wait_until(lambda: list(remembered.glob("*")) != [], "the agent remembers the pause", within=PATIENCE)
    wait_state(server, "syncer", "paused")
    agent.kill_tree()
    etcd.kill()
    small.place({7: None, 8: 1})
    agent.start()
    wait_state(host, "peers", "waiting: a complete list")
    wait_page(host, lambda page: "moving racks" in page.stdout, "it is remembered without etcd")
    etcd.start()
    wait_state(host, "peers", "paused")
    wait_state(server, "syncer", "held: intent")
    servers = holdfast(host, "get", "servers").stdout
    assert ": “moving racks”" in servers, f"the machine of an agent shows servers and their pauses, too: {servers}"
    assert len(small.wrong_routes()) == 2, "one to delete and one to create, and neither is done"
    # Once every worker has recovered from the loss of etcd.
    status = wait_page(small.runtime, lambda page: page.exit_code == 0, "it has an end, so nobody has to do anything")
    assert "paused by" in status.stdout
    assert "To release: holdfast resume fleet" in status.stdout
    assert holdfast(server, "resume", "fleet").exit_code == 0
    small.wait_settled()
