"""Helpers of the store tests: run a scenario on a store, follow a watch, wait for a condition."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from holdfast.model.base.time import Duration
from holdfast.store.api import GATHER, Events, KeyRange, Keys, OwnKey, Snapshot, Store
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection

PATIENCE = 30.0


def run(connection: Connection, scenario: Callable[[EtcdStore], Awaitable[None]]) -> None:
    """Runs a scenario on a store of its own; re-lists come at once, so that no test waits for jitter."""

    async def main() -> None:
        async with opened(connection) as store, asyncio.timeout(PATIENCE):
            await scenario(store)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def opened(connection: Connection) -> AsyncIterator[EtcdStore]:
    store = EtcdStore(connection, relist_spread=Duration(0))
    try:
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], bool], within: float = PATIENCE) -> None:
    """Waits until the condition holds; a test that waits in vain fails."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in other processes
            await asyncio.sleep(0.01)


class Follower:
    """Follows a prefix in the background and keeps what it would look like to a reader that trusts the watch."""

    def __init__(
        self, store: Store, prefix: Keys | Sequence[Keys], own: OwnKey | None = None, *, gather: Duration = GATHER
    ) -> None:
        self.seen: dict[bytes, tuple[int, bytes]] = {}
        self.history: list[tuple[int, bytes]] = []
        self.snapshots: list[Snapshot] = []
        self.batches: list[Events] = []
        self._store = store
        self._prefixes = (prefix,) if isinstance(prefix, bytes | KeyRange) else prefix
        self._own = own
        self._gather = gather
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Follower:
        self._task = asyncio.create_task(self._follow())
        await until(lambda: bool(self.snapshots) or self._task is None or self._task.done())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def revision(self) -> int:
        last = self.batches[-1].revision if self.batches else 0
        return max(last, self.snapshots[-1].revision)

    async def _follow(self) -> None:
        async for item in self._store.watch(*self._prefixes, own=self._own, gather=self._gather):
            if isinstance(item, Snapshot):
                self.snapshots.append(item)
                self.seen = {entry.key: (entry.mod_revision, entry.value) for entry in item.items}
                continue
            if not item.batch and not item.skipped:
                continue
            self.batches.append(item)
            for event in item.batch:
                self.history.append((event.mod_revision, event.key))
                if event.entry is None:
                    self.seen.pop(event.key, None)
                else:
                    self.seen[event.key] = (event.mod_revision, event.entry.value)
