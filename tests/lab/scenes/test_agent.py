"""Scenes of the agent on a lab of real processes, and how a missing object is noticed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.agent.claims import RemoteRoute, nexthop, route
from holdfast.agent.dataplane.file import FileContent, FileObject, save
from holdfast.cli import main
from holdfast.lab.fleet.layout import kernel_file
from holdfast.lab.scenes.agent import LabAgent, watched
from holdfast.lab.scenes.stage import Lab, until
from holdfast.testing.real.processes import wait_until
from tests.lab.harness import broken, needs_etcd, typed, written


@needs_etcd
def test_a_killed_agent_catches_up_and_changes_nothing_else(lab: Path) -> None:
    result = broken(lab, "agent-kill")
    assert result.exit_code == 0, result.output
    assert "killed the agent of r1-02: 3 processes, SIGKILL" in result.output
    assert "5 new objects, 5 kernel changes in all" in result.output
    assert re.search(r"0 objects were ever missing in [\d,]+ samples", result.output)


@needs_etcd
def test_objects_of_a_deleted_host_are_deleted_although_the_agent_missed_the_event(lab: Path) -> None:
    result = broken(lab, "node-gone-while-agent-down")
    assert result.exit_code == 0, result.output
    assert re.search(r"the 5 objects of r9-01 are deleted; 0 of the \d+ others were ever missing", result.output)


@needs_etcd
def test_a_reused_address_is_never_missing(lab: Path) -> None:
    result = typed(lab, written("docs/getting-started.md", "lab break ip-reuse"))
    assert result.returncode == 0, result.stdout
    assert re.search(r"has its new owner: 1 kernel change; 0 of \d+ objects were ever missing", result.stdout)


@needs_etcd
def test_in_a_lab_an_agent_is_named_by_its_host(lab: Path) -> None:
    peer = re.compile(r"r1-02 +direct 192\.0\.2\.2 +4 +5 +in sync")  # three workloads and the tunnel address
    wait_until(
        lambda: peer.search(asked(lab, "agent", "peers", "--host", "r1-01").output) is not None,
        "the agent of r1-01 has its peer in sync",
        within=90,
    )
    assert "no agent of r7-77 is running here; running: r1-01" in asked(lab, "agent", "peers", "--host", "r7-77").output


@needs_etcd
def test_an_agent_is_paused_and_resumed_by_its_host(lab: Path) -> None:
    paused = asked(lab, "pause", "host", "r1-02", "--for", "30m", "--reason", "maintenance")
    resumed = asked(lab, "resume", "host", "r1-02")
    assert paused.output.startswith("host r1-02 is paused until ")
    assert resumed.output == "host r1-02 goes on\n"


@needs_etcd
def test_a_host_is_explained_by_a_server_and_by_an_agent(lab: Path) -> None:
    alive = re.compile(r"AGENT       alive, last report \S+Z by its own clock")
    peer = "r1-02 is a peer of r1-01, reached by direct 192.0.2.2."

    def told() -> bool:
        text = asked(lab, "explain", "host", "r1-02", "--host", "r1-01").output
        return peer in text and alive.search(text) is not None

    # An agent that a scene held down counts as silent until its next report has arrived.
    wait_until(told, "the host is a peer, and the server knows that its agent lives", within=90)


def asked(lab: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--runtime", str(lab / "run")])


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = kernel_file(tmp_path / "state", "h")
    path.parent.mkdir(parents=True)
    return path


def test_an_object_that_is_missing_for_a_moment_is_noticed(tmp_path: Path, kernel: Path) -> None:
    key = route("10.28.0.1/32")
    there = FileContent(objects=(FileObject(str(key), key, RemoteRoute("192.0.2.1")),))

    async def look_away_and_back() -> set[object]:
        save(kernel, there)
        async with watched(LabAgent(Lab(tmp_path), "h"), {key}) as gaps:
            await asyncio.sleep(0.1)
            save(kernel, FileContent())
            samples = gaps.samples
            await until("two more samples", lambda: gaps.samples >= samples + 2)
            save(kernel, there)
        return set(gaps.missing)

    assert asyncio.run(look_away_and_back()) == {key}


def test_an_agent_has_programmed_its_peers_when_there_is_a_route_to_each(tmp_path: Path, kernel: Path) -> None:
    agent = LabAgent(Lab(tmp_path), "h")
    keys = [nexthop("192.0.2.1"), *(route(f"10.28.1.{place}/32") for place in (1, 2, 3))]
    save(kernel, FileContent(objects=tuple(FileObject(str(key), key, RemoteRoute("192.0.2.1")) for key in keys)))
    assert agent.has_programmed(["a"])
    save(kernel, FileContent(objects=tuple(FileObject(str(key), key, RemoteRoute("192.0.2.1")) for key in keys[:-1])))
    assert not agent.has_programmed(["a"]), "one workload is missing"
    assert not agent.has_programmed(["a", "b"])
