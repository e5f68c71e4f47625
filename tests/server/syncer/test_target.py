"""Target of the syncer: what happens between the last read of a batch and its first write."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from holdfast.reconcile import Change, Op, Owned
from holdfast.server.syncer.target import EtcdTarget
from holdfast.store.api import Entry
from tests.inventory.harness import endpoint, endpoint_key
from tests.server.harness import syncer_harness


def test_before_write_is_called_after_the_last_read_and_only_if_something_is_written(tmp_path: Path) -> None:
    with syncer_harness(tmp_path) as here:
        calls: list[tuple[str, int]] = []

        async def moved(keys: Collection[bytes]) -> Mapping[bytes, bytes]:
            calls.append(("read", here.fake.revision))
            return {key: endpoint_key(9, on="r9") for key in keys}

        async def before_write(_changes: object) -> None:
            calls.append(("before", here.fake.revision))

        async def scenario() -> int:
            here.editor.change([endpoint(1), endpoint(2)], who="alice")
            term = await here.settled()
            target = EtcdTarget(term.fenced, term.layout, term.source.bound, new_keys=moved, before_write=before_write)
            seen, key = here.fake.revision, endpoint_key(1)
            leaving = Change(Op.DELETE, key, (await target.get([key]))[key], None)
            new = Owned(Entry(endpoint_key(3), b"{}"), "inventory", 1)
            assert [one.error is None for one in await target.apply([leaving])] == [False]
            await target.apply([leaving, Change(Op.CREATE, endpoint_key(3), None, new)])
            return seen

        seen = asyncio.run(scenario())
        assert calls == [("read", seen), ("read", seen), ("before", seen)]
        assert here.fake.revision > seen
