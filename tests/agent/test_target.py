"""The journal in front of the kernel, read a page at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.agent.claims import Claim, ClaimKey, LocalRoute, route
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.journal import Journal, codec
from holdfast.agent.journal.frames import EntryKind, FoundEntry, scan
from holdfast.agent.target import JournaledTarget
from holdfast.reconcile import Change, Op, Owned
from holdfast.testing.fakes.kernel import FakeKernel
from tests.agent.dataplane.conformance import tunnel
from tests.agent.harness import BOOT, turns_of_others
from tests.agent.journal.harness import inline

PEERS = 40
MANY = 8_000


def peers() -> list[ClaimChange]:
    wanted = {
        key: shape
        for number in range(1, PEERS + 1)
        for key, shape in tunnel(f"10.99.0.{number}", f"66:00:00:00:00:{number:02x}", f"192.0.2.{number}")
    }
    return [Change(Op.CREATE, key, None, Owned(Claim(wanted[key]), "region", 1)) for key in sorted(wanted)]


async def pages(kernel: JournaledTarget) -> list[list[ClaimKey]]:
    found, after = [], None
    while True:
        page, after = await kernel.read(after)
        found.append([key for key, _ in page])
        if after is None:
            return found


def test_its_pages_are_all_that_there_is_in_order(tmp_path: Path) -> None:
    changes = peers()
    kernel = JournaledTarget(Journal.open(tmp_path / "journal", BOOT), FakeKernel(), page=PEERS)

    async def scene() -> None:
        await kernel.apply(changes)
        found = await pages(kernel)
        assert [len(page) for page in found[:-1]] == [PEERS] * (len(changes) // PEERS)
        assert [key for page in found for key in page] == [change.key for change in changes]
        assert list(kernel.present) == [change.key for change in changes]

    asyncio.run(scene())
    kernel.journal.close()


def test_an_empty_kernel_is_one_empty_page(tmp_path: Path) -> None:
    kernel = JournaledTarget(Journal.open(tmp_path / "journal", BOOT), FakeKernel())
    assert asyncio.run(pages(kernel)) == [[]]
    kernel.journal.close()


def test_a_pass_that_broke_off_leaves_nothing_for_the_next(tmp_path: Path) -> None:
    changes = peers()
    dataplane = FakeKernel()
    kernel = JournaledTarget(Journal.open(tmp_path / "journal", BOOT), dataplane, page=PEERS)

    async def scene() -> None:
        await kernel.apply(changes)
        await kernel.read(None)
        gone = changes[-1]
        await kernel.apply([Change(Op.DELETE, gone.key, gone.new, None)])
        assert gone.key not in {key for page in await pages(kernel) for key in page}

    asyncio.run(scene())
    kernel.journal.close()


def test_others_have_their_turns_while_thousands_of_objects_are_compared(tmp_path: Path) -> None:
    keys = [route(f"10.{number >> 8}.{number & 255}.0/24") for number in range(MANY)]
    dataplane = FakeKernel(objects={key: LocalRoute("tap1") for key in keys})
    kernel = JournaledTarget(Journal.open(tmp_path / "journal", BOOT), dataplane)

    async def scene() -> None:
        async with turns_of_others() as turns:
            assert sum(map(len, await pages(kernel))) == MANY
        assert len(turns) >= 3 * MANY // 1_000  # to put them in order, to look whose they are, to remember them

    asyncio.run(scene())
    kernel.journal.close()


def restarted(path: Path, dataplane: FakeKernel) -> JournaledTarget:
    return JournaledTarget(Journal.open(path, BOOT), dataplane)


def test_records_of_another_release_stay_as_they_are_and_are_not_used(tmp_path: Path) -> None:
    """One with an unknown key, one with an unknown body; a compaction keeps both."""
    path, key, owned = tmp_path / "journal", route("10.0.0.0/24"), Owned(Claim(LocalRoute("tap1")), "region", 1)
    records = {
        codec.write_key(key): codec.write(owned),
        codec.write_key(route("10.0.1.0/24")): b'["another shape"]',
        b"tunnel 4 1": b"{}",
    }
    journal = Journal.open(path, BOOT)
    journal.add(records.items())
    journal.close()
    kernel = restarted(path, FakeKernel(objects={key: owned.value.shape}))
    assert asyncio.run(pages(kernel)) == [[key]]
    assert list(kernel.journaled()) == [(key, owned)]
    asyncio.run(kernel.journal.compact(inline))
    kernel.journal.close()
    entries = [one for one in scan(path.read_bytes()) if isinstance(one, FoundEntry) and one.op is EntryKind.ADD]
    assert {one.key: one.body for one in entries} == records


def test_the_journal_holds_the_same_object_as_the_source(tmp_path: Path) -> None:
    """A hundred thousand claims are not in memory a second time, encoded."""
    kernel, changes = restarted(tmp_path / "journal", FakeKernel()), peers()
    asyncio.run(kernel.apply(changes))
    for change in changes:
        assert kernel.journal.live[change.key] is kernel.present.claims[change.key] is change.new
    kernel.journal.close()


def test_a_delete_is_journalled_without_what_the_kernel_lacked_at_the_moment(tmp_path: Path) -> None:
    kernel = restarted(tmp_path / "journal", FakeKernel(refuse=lambda _change: "busy"))
    key, owned = route("10.0.0.0/24"), Owned(Claim(LocalRoute("tap1"), missing=True), "region", 1)
    asyncio.run(kernel.apply([Change(Op.DELETE, key, owned, None)]))
    assert dict(kernel.journal.deleting) == {key: Owned(Claim(LocalRoute("tap1")), "region", 1)}
    kernel.journal.close()
