"""`holdfast history` on any server has what the workers of every server decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import folder, wait_until
from holdfast.testing.real.servers import ServerGroup, ServerProcess
from tests.chaos.harness import servers, step_down, wait_working

_PATIENCE = 90.0


def endpoint(region: Region, number: int) -> WantedObject:
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=f"w{number}",
        node="r1",
        endpoint="eth0",
        ip_networks=(f"10.28.{number >> 8}.{number & 255}/32",),
    )
    return wanted(ENDPOINT, region, spec.name, Endpoint.of(region, spec))


def history(server: ServerProcess, *words: str) -> Result:
    return CliRunner().invoke(main, ["history", "-n", "0", *words, "--runtime", str(server.runtime)])


def deletes(server: ServerProcess) -> Counter[str]:
    """Count the deletes by syncers that `history` shows, by worker."""
    workers = [line.split()[2] for line in history(server).stdout.splitlines() if " delete endpoint " in line]
    return Counter(worker for worker in workers if worker.endswith("syncer"))


@pytest.fixture(scope="module")
def fleet(started: EtcdCluster) -> Iterator[tuple[ServerGroup, Editor]]:
    """Two servers on one inventory of 1,000 endpoints, which are in the store."""
    with folder() as home, fresh_engine(f"sqlite:///{home}/inventory.db") as engine:
        settings = {"inventory.database": f"sqlite:///{home}/inventory.db", "inventory.poll_every": "200ms"}
        with servers(started, 2, settings=settings) as fleet:
            editor = Editor(engine, fleet.region)
            editor.change([endpoint(fleet.region, number) for number in range(1_000)], who="alice")
            leader = fleet.leader()
            wait_until(lambda: leader.says("store is filled"), "the store is filled", within=_PATIENCE)
            wait_until(lambda: "1,000 (endpoint" in history(leader).stdout, "it has 1,000 endpoints", within=_PATIENCE)
            yield fleet, editor


def remove(editor: Editor, first: int, count: int) -> None:
    editor.change([WantedObject(ENDPOINT, f"holdfast-w{n}-eth0") for n in range(first, first + count)], who="alice")


def test_both_servers_show_the_deletes_of_every_leader(fleet: tuple[ServerGroup, Editor]) -> None:
    group, editor = fleet
    term, first = wait_working(group)
    (second,) = group.others(first)
    remove(editor, 0, 30)
    wait_until(lambda: deletes(first) == {"syncer": 30}, "the leader has recorded 30 deletes", within=_PATIENCE)
    assert deletes(second) == {f"{first.name}/syncer": 30}
    step_down(first)
    wait_working(group, after=term)
    remove(editor, 30, 5)
    wait_until(lambda: deletes(second)["syncer"] == 5, "the new leader has recorded 5 deletes", within=_PATIENCE)
    assert deletes(second) == {f"{first.name}/syncer": 30, "syncer": 5}
    assert deletes(first) == {"syncer": 30, f"{second.name}/syncer": 5}


def test_a_server_that_does_not_answer_is_named_and_the_others_are_shown(fleet: tuple[ServerGroup, Editor]) -> None:
    group, _ = fleet
    leader = group.leader()
    (other,) = group.others(leader)
    other.process.pause()  # only the supervisor: the elector keeps the server registered
    try:
        shown = history(leader)
    finally:
        other.process.resume()
    assert " lead leader: done, " in shown.stdout
    assert shown.stderr == f"without the decisions of {other.name}, which does not answer: run holdfast history there\n"
