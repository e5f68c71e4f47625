"""What the doctor says about each verdict on the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.cli.doctor import Finding, Severity
from holdfast.cli.doctor.identity import examine
from holdfast.model.base.region import Region
from holdfast.model.calico.host import HOST, Host, HostSpec
from holdfast.model.control.identity import IDENTITY, Identity, LatchedVerdict
from holdfast.model.control.leader import LEADER
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.identity import SeenStore, identity_key
from holdfast.testing import FakeStore

REGION = Region()
KELP = Identity("kelp", 2)


def examined(identity: Identity | None, state: Path, *, seen: SeenStore | None = None, host: bool = False) -> Finding:
    (finding,) = findings(identity, state, seen=seen, host=host)
    return finding


def findings(
    identity: Identity | None, state: Path, *, seen: SeenStore | None = None, host: bool = False
) -> Sequence[Finding]:
    async def scenario() -> Sequence[Finding]:
        store = FakeStore(now=lambda: 0.0).client("doctor")
        await store.put(LEADER.key(REGION, "leader"), b"{}")
        if host:
            await store.put(HOST.key(REGION, "r1"), HOST.encode(Host.of("r1", HostSpec())))
        if identity is not None:
            await store.put(identity_key(REGION), IDENTITY.encode(identity))
        return await examine(store, REGION, state)

    if seen is not None:
        StoreMemory(state, "agent").keep(seen)
    return asyncio.run(scenario())


def test_a_store_that_is_ours(tmp_path: Path) -> None:
    found = examined(KELP, tmp_path, seen=SeenStore("kelp", 2, 1))
    assert found == Finding(Severity.GOOD, "identity", "fleet kelp, epoch 2, revision 3")


def test_a_store_that_is_being_filled_is_a_note(tmp_path: Path) -> None:
    found = examined(Identity("kelp", 2, filling=True), tmp_path, seen=SeenStore("kelp", 1, 9))
    assert found.severity is Severity.NOTE
    assert found.sentence.endswith("nothing is deleted meanwhile. Nothing is to be done")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (SeenStore("kelp", 2, 90), "the store went back to epoch 2, revision 3"),
        (SeenStore("kelp", 2, 3, trace=1), "the history of the store is not the one that was seen"),
        (SeenStore("kelp", 2, 3, restored="it went back", noticed=2), "it went back"),
    ],
)
def test_a_restored_store(tmp_path: Path, seen: SeenStore, words: str) -> None:
    found = examined(KELP, tmp_path, seen=seen)
    assert found.severity is Severity.WRONG
    assert found.sentence.startswith("store_restored: ")
    assert words in found.sentence
    assert "holdfast resync does it now" in found.sentence
    assert found.sentence.endswith("To release: holdfast store adopt --reason WHY")


def test_the_verdict_of_the_leader(tmp_path: Path) -> None:
    latched = Identity("kelp", 2, verdict=LatchedVerdict("inventory_restored", "mark 9 is not the inventory's", 5))
    found = examined(latched, tmp_path)
    assert found.severity is Severity.WRONG
    assert found.sentence.startswith("inventory_restored: mark 9 is not the inventory's. ")
    assert found.sentence.endswith("To release: holdfast inventory adopt --keep store|inventory --reason WHY")


def test_an_empty_store_without_an_identity_is_a_note(tmp_path: Path) -> None:
    found = examined(None, tmp_path)
    assert found.severity is Severity.NOTE


def test_a_store_without_an_identity_that_holds_objects(tmp_path: Path) -> None:
    found = examined(None, tmp_path, host=True)
    assert found.severity is Severity.WRONG
    assert found.sentence.startswith("store_unnamed: the store has no identity but holds objects")
    for command in ("holdfast diff inventory", "holdfast import", "holdfast store adopt --reason WHY"):
        assert command in found.sentence


def test_a_store_of_another_fleet(tmp_path: Path) -> None:
    found = examined(Identity("wrack", 1), tmp_path, seen=SeenStore("kelp", 2, 1))
    assert found.severity is Severity.WRONG
    assert found.sentence.endswith("check store.endpoints and store.region")


def test_each_verdict_is_shown_once(tmp_path: Path) -> None:
    StoreMemory(tmp_path, "server").keep(SeenStore("kelp", 2, 90))
    StoreMemory(tmp_path, "balancer").keep(SeenStore("kelp", 2, 1))
    bad, good = findings(KELP, tmp_path, seen=SeenStore("kelp", 2, 90))
    assert (bad.severity, good.severity) == (Severity.WRONG, Severity.GOOD)
