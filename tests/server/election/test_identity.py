"""Identity check: the store is judged by what is remembered of it; a disk that takes no writes costs no leadership."""

from __future__ import annotations

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.runtime.store_memory import StoreMemory
from holdfast.server.election.identity import IdentityCheck
from holdfast.store.api import Put
from holdfast.store.identity import StoreVerdict, identity_key
from holdfast.testing import FakeStore

REGION = Region("r")


def test_a_disk_that_takes_no_writes_is_logged_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.store.json.new").mkdir()  # so that the file cannot be written, not even by root

    async def scenario() -> None:
        store = FakeStore(now=lambda: 0.0).client()
        await store.txn([], [Put(identity_key(REGION), IDENTITY.encode(Identity("kelp", 1)))])
        guard = IdentityCheck(store, REGION, StoreMemory(tmp_path, "server"))
        with capture_logs() as lines:
            verdicts = [(await guard.check(NEVER)).verdict for _ in range(3)]
        assert verdicts == [StoreVerdict.OURS] * 3
        assert len([line for line in lines if "cannot save" in line["event"]]) == 1
        (tmp_path / "server.store.json.new").rmdir()
        await guard.check(NEVER)
        assert not guard.unsaved
        assert StoreMemory(tmp_path, "server").load() is not None

    asyncio.run(scenario())
