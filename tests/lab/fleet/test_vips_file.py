"""The lab's dataplane: what every dataplane must do, and what two processes see of one file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.balancer.vip import BackendEntry, VipKey
from holdfast.lab.fleet.vips_file import VipsFile
from holdfast.reconcile import Away
from tests.balancer.dataplane.conformance import CASES, FULL, ONE, TWO, V4, Case, change, made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_conforms(tmp_path: Path, case: Case) -> None:
    async def prove() -> None:
        await case(VipsFile(path=tmp_path / "vips.json"))

    asyncio.run(prove())


def of_both(path: Path) -> tuple[VipsFile, VipsFile]:
    """The balancer's side with everything made, and a client's with a hundred flows."""
    ours, theirs = VipsFile(path=path), VipsFile(path=path)
    asyncio.run(made(ours, *FULL))
    theirs.load()
    for client in range(100):
        theirs.connect(V4, client)
    return ours, theirs


def test_objects_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    ours, _ = of_both(tmp_path / "vips.json")
    found = VipsFile(path=tmp_path / "vips.json")
    assert asyncio.run(found.read()) == ours.objects
    assert found.writes == len(FULL)


def test_a_client_that_reads_late_misses_no_end_of_its_flows(tmp_path: Path) -> None:
    ours, client = of_both(tmp_path / "vips.json")
    others = {flow for flow, to in client.flows.items() if to == TWO}
    dead = BackendEntry(0, kill=True)
    asyncio.run(
        made(ours, change(VipKey(V4, ONE), dead, BackendEntry(100)), change(VipKey(V4, ONE), BackendEntry(100), dead))
    )
    client.load()
    assert client.flows.keys() == others


def test_a_weight_of_zero_leaves_a_clients_flows_alone(tmp_path: Path) -> None:
    ours, client = of_both(tmp_path / "vips.json")
    before = dict(client.flows)
    asyncio.run(made(ours, change(VipKey(V4, ONE), BackendEntry(0), BackendEntry(100))))
    client.load()
    assert client.flows == before


def test_a_malformed_file_is_an_unreachable_dataplane(tmp_path: Path) -> None:
    (tmp_path / "vips.json").write_text('{"vips": {"nowhere": {}}}')
    with pytest.raises(Away, match="To start with an empty one: delete the file"):
        asyncio.run(VipsFile(path=tmp_path / "vips.json").read())
