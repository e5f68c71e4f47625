"""Verdicts on a store's identity: ours, foreign, restored."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.identity import Identity
from holdfast.store import identity
from holdfast.store.api import WriteConflict
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import (
    SeenStore,
    StoreIdentity,
    StoreVerdict,
    classify_store,
    create_identity,
    identity_key,
    raise_epoch,
    read_identity,
)
from holdfast.testing import FakeStore
from holdfast.testing.fault import fault

REGION = Region()
OURS = Identity(fleet="kelp", epoch=2)
KNOWN = SeenStore("kelp", 2, 100)


@pytest.mark.parametrize(
    ("remembered", "found", "verdict"),
    [
        (None, StoreIdentity(None, 1), StoreVerdict.UNNAMED),
        (None, StoreIdentity(OURS, 1), StoreVerdict.OURS),
        (KNOWN, StoreIdentity(OURS, 100), StoreVerdict.OURS),
        (KNOWN, StoreIdentity(OURS, 99), StoreVerdict.RESTORED),
        (KNOWN, StoreIdentity(None, 500), StoreVerdict.RESTORED),
        (KNOWN, StoreIdentity(Identity(fleet="kelp", epoch=3), 5), StoreVerdict.OURS),
        (KNOWN, StoreIdentity(Identity(fleet="kelp", epoch=1), 500), StoreVerdict.RESTORED),
        (KNOWN, StoreIdentity(Identity(fleet="wrack", epoch=2), 100), StoreVerdict.FOREIGN),
    ],
)
def test_a_store_is_judged_by_what_is_remembered(
    remembered: SeenStore | None, found: StoreIdentity, verdict: StoreVerdict
) -> None:
    assert classify_store(remembered, found).verdict is verdict


def test_a_restored_store_names_the_command_that_adopts_it() -> None:
    judgement = classify_store(KNOWN, StoreIdentity(OURS, 7))
    assert judgement.opens == "holdfast store adopt --reason WHY"
    assert "revision 7" in judgement.sentence
    assert "revision 100" in judgement.sentence


def test_memory_keeps_the_highest_revision_until_the_epoch_rises() -> None:
    assert KNOWN.seen(StoreIdentity(OURS, 50)).revision == 100
    assert KNOWN.seen(StoreIdentity(OURS, 150)).revision == 150
    assert KNOWN.seen(StoreIdentity(Identity(fleet="kelp", epoch=3), 5)) == SeenStore("kelp", 3, 5)


def test_an_identity_is_created_once() -> None:
    async def main() -> None:
        client = FakeStore().client()
        fenced = FencedStore(client, b"leader", await client.put(b"leader", b""))
        assert (await read_identity(client, REGION)).identity is None
        await create_identity(fenced, REGION, OURS)
        assert (await read_identity(client, REGION)).identity == OURS
        with pytest.raises(WriteConflict):
            await create_identity(fenced, REGION, Identity(fleet="other", epoch=1))

    asyncio.run(main())


def test_regions_have_their_own_identity() -> None:
    assert identity_key(Region()) == b"/holdfast/v1/no-region/identity"
    assert identity_key(Region("ams")) == b"/holdfast/v1/region-ams/identity"


def test_an_identity_that_cannot_be_read_closes_the_gate() -> None:
    async def main() -> None:
        client = FakeStore().client()
        await client.put(identity_key(REGION), b"rubbish")
        found = await read_identity(client, REGION)
        assert isinstance(found.identity, Bad)
        assert classify_store(KNOWN, found).verdict is StoreVerdict.RESTORED

    asyncio.run(main())


@fault(
    "C29",
    without="holdfast.store.identity:classify_store",
    by="tests.store.test_identity:trust",
    sees=(AssertionError, r"identity.classify_store\(remembered, found\).verdict is"),
)
def test_C29_a_restored_store_is_recognised_until_an_operator_adopts_it() -> None:
    async def main() -> None:
        fake = FakeStore()
        client = fake.client()
        fenced = FencedStore(client, b"leader", await client.put(b"leader", b""))
        await create_identity(fenced, REGION, OURS)
        backup = fake.revision
        await client.put(b"later", b"")
        found = await read_identity(client, REGION)
        remembered = SeenStore("kelp", 2, found.revision)
        fake.restore(backup)
        found = await read_identity(client, REGION)
        assert identity.classify_store(remembered, found).verdict is StoreVerdict.RESTORED
        adopted = await raise_epoch(client, REGION, found, remembered, who="ada", why="backup")
        assert adopted == Identity("kelp", 3, "ada", "backup")
        found = await read_identity(client, REGION)
        assert identity.classify_store(remembered, found).verdict is StoreVerdict.OURS

    asyncio.run(main())


def trust(remembered: SeenStore | None, found: StoreIdentity) -> object:
    """Stands in for the judgement of a store: whatever answers is ours."""
    return identity.Judgement(StoreVerdict.OURS, "")


def test_adopting_does_not_overwrite_what_changed_meanwhile() -> None:
    async def main() -> None:
        client = FakeStore().client()
        await client.put(identity_key(REGION), b'{"fleet":"kelp","epoch":2}')
        found = await read_identity(client, REGION)
        await client.put(identity_key(REGION), b'{"fleet":"kelp","epoch":3}')
        with pytest.raises(WriteConflict):
            await raise_epoch(client, REGION, found, KNOWN, who="ada", why="backup")

    asyncio.run(main())
