"""The file dataplane: conforms, outlives the agent, and notices edits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from holdfast.agent.claims import LocalRoute, Mode, NexthopEntry, RemoteRoute, nexthop, route
from holdfast.agent.dataplane.file import FileContent, FileDataplane, load, save
from holdfast.reconcile import Away
from tests.agent.dataplane.conformance import CASES, Case, Ground, change

P1 = route("10.65.0.1/32")
N1 = nexthop("10.99.0.1")
WAY = [change(N1, NexthopEntry(Mode.VXLAN)), change(P1, RemoteRoute("10.99.0.1"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_conforms(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    save(path, FileContent(absent=("tap9",)))

    async def prove() -> None:
        plane = FileDataplane(path)
        await plane.read()
        await case(Ground(plane, absent="tap9"))

    asyncio.run(prove())


def test_another_agent_finds_what_the_last_one_left(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    asyncio.run(FileDataplane(path).apply(WAY))
    assert asyncio.run(FileDataplane(path).read([P1])) == {P1: RemoteRoute("10.99.0.1")}
    assert load(path).changes == 2


def test_emptying_the_file_is_a_disturbance(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"

    async def disturb() -> object:
        plane = FileDataplane(path)
        await plane.apply(WAY)
        waiting = asyncio.create_task(plane.disturbed())
        await asyncio.sleep(0)
        path.unlink()
        async with asyncio.timeout(30):
            return await waiting

    assert asyncio.run(disturb()) is None


def test_an_interface_listed_as_absent_blocks_its_routes(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    save(path, FileContent(absent=("tap1",)))

    async def reasons() -> tuple[str | None, str | None]:
        plane = FileDataplane(path)
        await plane.read()
        return plane.blocked_by(P1, LocalRoute("tap1")), plane.blocked_by(P1, LocalRoute("tap2"))

    assert asyncio.run(reasons()) == ("interface tap1 does not exist", None)


def test_a_malformed_file_is_an_unreachable_dataplane(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    path.write_bytes(b"rubbish")
    with pytest.raises(Away, match="delete it to start with an empty one"):
        asyncio.run(FileDataplane(path).read())


def test_the_file_names_its_objects_for_people(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    asyncio.run(FileDataplane(path).apply(WAY))
    named = [one["name"] for one in msgspec.json.decode(path.read_bytes())["objects"]]
    assert named == ["nexthop 10.99.0.1", "route 10.65.0.1/32"]
