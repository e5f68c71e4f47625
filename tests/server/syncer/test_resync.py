"""`holdfast resync` and `diff inventory`: the differences within a scope, and the progress."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.ignored import IgnoredEditor
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.model.calico.host import HOST
from holdfast.model.fleet.network import NETWORK, NETWORK_LABEL, Network
from holdfast.runtime.control import Declined, Request, Who
from holdfast.server.syncer.resync import Resync
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name, host
from tests.server.harness import SyncerHarness, syncer_harness


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


async def told_of(resync: Resync, **args: object) -> dict[str, Any]:
    """Asks for a resync and, as the command does, again until it is done."""
    said = await resync.answer(Request("resync", args), Who(0, 0, "root"))
    async with asyncio.timeout(30):
        while not said["done"]:
            await asyncio.sleep(0.01)
            said = await resync.answer(Request("resync", {"progress": True}), Who(0, 0, "root"))
    return said


def test_a_resync_by_hand_tells_what_differed(here: SyncerHarness) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([endpoint(1), endpoint(2), host(1)], who="alice")
        term = await here.settled()
        await here.operator.delete(endpoint_key(1))
        await here.operator.put(HOST.key(REGION, "r9"), b"{}")
        return await told_of(Resync(term), dry_run=True, kind="endpoints")

    told = asyncio.run(scenario())
    assert (told["create"], told["replace"], told["delete"], told["differed"]) == (1, 0, 0, 1)
    assert told["objects"] == [{"op": "create", "key": "endpoint r1-holdfast-w1-eth0", "group": "drift"}]
    assert endpoint_key(1) not in here.stored()


def test_a_resync_of_one_object_mends_that_one_only(here: SyncerHarness) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([endpoint(1), endpoint(2), endpoint(3)], who="alice")
        term = await here.settled()
        await here.operator.delete(endpoint_key(1))
        await here.operator.delete(endpoint_key(2))
        resync = asyncio.create_task(told_of(Resync(term), kind="endpoints", name=endpoint_name(2)))
        while not len(term.reconciler.dirty):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await term.reconciler.turn()
        return await resync

    assert asyncio.run(scenario())["differed"] == 1
    assert set(here.stored()) == {endpoint_key(2), endpoint_key(3)}


def test_a_resync_that_cannot_be_done_is_one_sentence(here: SyncerHarness) -> None:
    async def scenario() -> dict[str, Any]:
        term = await here.settled()
        term.syncer.store.link.cut()  # type: ignore[attr-defined]
        return await told_of(Resync(term))

    assert "nothing was compared: store is unreachable" in asyncio.run(scenario())["error"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"kind": "pods"}, "no kind 'pods' in the inventory; there are: hosts, networks, subnets, endpoints"),
        ({"name": "r1"}, "--name needs --kind"),
        ({"progress": True}, "no resync was requested"),
    ],
)
def test_a_resync_that_makes_no_sense_is_one_sentence(here: SyncerHarness, args: dict[str, object], words: str) -> None:
    async def scenario() -> None:
        await Resync(await here.settled()).answer(Request("resync", args), Who(0, 0, "root"))

    with pytest.raises(Declined, match=words):
        asyncio.run(scenario())


def on_network(number: int, network: str) -> WantedObject:
    plain = endpoint(number).thing
    assert isinstance(plain, Endpoint)
    thing = Endpoint.of(REGION, plain.spec, labels={NETWORK_LABEL: network})
    return wanted(ENDPOINT, REGION, plain.spec.name, thing)


def test_a_resync_of_a_network_reports_how_much_of_it_would_be_deleted(here: SyncerHarness) -> None:
    async def scenario() -> dict[str, Any]:
        networks = [wanted(NETWORK, REGION, name, Network(prefixes=("10.0.0.0/8",))) for name in ("red", "blue")]
        here.editor.change([*networks, *(on_network(n, "red" if n < 4 else "blue") for n in range(8))], who="alice")
        term = await here.settled()
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(n)) for n in (0, 1, 6)], who="alice")
        return await told_of(Resync(term), dry_run=True, network="red")

    told = asyncio.run(scenario())
    assert (told["delete"], told["differed"]) == (2, 2)
    assert told["networks"] == {"red": {"delete": 2, "of": 4}}
    assert told["looked"] == 10


def test_only_endpoints_count_towards_the_share_of_a_network(here: SyncerHarness) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([wanted(NETWORK, REGION, "red", Network(prefixes=("10.0.0.0/8",)))], who="alice")
        term = await here.settled()
        here.editor.change([WantedObject(NETWORK, "red")], who="alice")
        return await told_of(Resync(term), dry_run=True)

    told = asyncio.run(scenario())
    assert (told["delete"], told["networks"]) == (1, {})


def test_differences_are_grouped_by_what_is_known_about_them(here: SyncerHarness) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([host(1), host(2), *(endpoint(n) for n in range(5))], who="alice")
        term = await here.settled()
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(0)), endpoint(1, on="r2")], who="bob")
        await here.operator.delete(endpoint_key(2))
        stray, ignored = endpoint(7), endpoint(8)
        for one in (stray, ignored):
            await here.operator.put(one.key, ENDPOINT.encode(one.thing))  # type: ignore[arg-type]
        IgnoredEditor(here.inventory).add(ignored.key, who="alice", why="theirs")
        return await told_of(Resync(term), dry_run=True)

    told = asyncio.run(scenario())
    assert told["groups"] == {"drift": 1, "move": 1, "witnessed": 1, "unwitnessed": 1}
    assert (told["differed"], told["delete"], told["ignored"]) == (5, 3, 1)
    found = {(one["op"], one["key"].removeprefix("endpoint ")): one for one in told["objects"]}
    assert {named: one["group"] for named, one in found.items()} == {
        ("delete", "r1-holdfast-w0-eth0"): "witnessed",
        ("delete", "r1-holdfast-w1-eth0"): "move",
        ("create", "r2-holdfast-w1-eth0"): "move",
        ("create", "r1-holdfast-w2-eth0"): "drift",
        ("delete", "r1-holdfast-w7-eth0"): "unwitnessed",
    }
    assert found["delete", "r1-holdfast-w0-eth0"]["who"] == "bob"
    assert found["delete", "r1-holdfast-w1-eth0"]["to"] == "endpoint r2-holdfast-w1-eth0"


def test_values_of_differences_are_reported_on_request(here: SyncerHarness) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([endpoint(1)], who="alice")
        term = await here.settled()
        await here.operator.put(endpoint_key(1), b"broken")
        return await told_of(Resync(term), dry_run=True, values=True)

    (one,) = asyncio.run(scenario())["objects"]
    assert (one["op"], one["old"]) == ("replace", "broken")
    assert '"workload":"w1"' in one["new"]


def test_a_resync_of_some_keys_repairs_these_and_no_others(here: SyncerHarness) -> None:
    async def scenario() -> tuple[dict[str, Any], dict[bytes, bytes]]:
        here.editor.change([endpoint(1), endpoint(2)], who="alice")
        term = await here.settled()
        for number in (1, 2):
            await here.operator.put(endpoint_key(number), b"broken")
        resync = asyncio.create_task(told_of(Resync(term), keys=[endpoint_key(1).decode()]))
        while not resync.done():
            await term.reconciler.turn()
            await asyncio.sleep(0)
        return await resync, here.stored()

    told, stored = asyncio.run(scenario())
    assert told["differed"] == 1
    assert stored[endpoint_key(1)] != b"broken"
    assert stored[endpoint_key(2)] == b"broken"
