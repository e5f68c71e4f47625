"""The grounds that the conformance suite runs on, and the short words in which its tests are written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.model.base.time import seconds
from holdfast.store.api import Entry, Events, Page, Snapshot, Store, StoreError
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing import World, simulate
from holdfast.testing.real.etcd import EtcdCluster

T = TypeVar("T")
Scenario = Callable[[Store], Coroutine[Any, Any, T]]
PATIENCE = 60.0


class Ground(Protocol):
    """Something to run a scenario on, with a store that begins empty."""

    def run(self, scenario: Scenario[T]) -> T: ...


class FakeGround:
    """FakeStore on virtual time: an expiring lease costs nothing here."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def run(self, scenario: Scenario[T]) -> T:
        async def simulated(world: World) -> T:
            return await scenario(world.node("client").store())

        return simulate(self.seed, simulated).value


class GatewayGround:
    """The shipped client on the in-memory gateway, on virtual time."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def run(self, scenario: Scenario[T]) -> T:
        async def simulated(world: World) -> T:
            return await scenario(world.node("client").etcd())

        return simulate(self.seed, simulated).value


class EtcdGround:
    """A real etcd, shared with others of its kind: whoever comes clears it first."""

    def __init__(self, cluster: EtcdCluster) -> None:
        self.cluster = cluster

    def run(self, scenario: Scenario[T]) -> T:
        return asyncio.run(self._run(scenario))

    async def _run(self, scenario: Scenario[T]) -> T:
        store = EtcdStore(Connection(self.cluster.endpoints, deadline=seconds(20)), relist_spread=seconds(0))
        async with asyncio.timeout(PATIENCE):
            try:
                await store.delete(b"\0", end=b"\0")
                return await scenario(store)
            finally:
                await store.close()


def conforms(scenario: Scenario[None]) -> Callable[[Ground], None]:
    """Makes a test out of a coroutine: it runs on every ground."""

    def test(ground: Ground) -> None:
        ground.run(scenario)

    test.__name__ = getattr(scenario, "__name__", "test")
    test.__doc__ = scenario.__doc__
    return test


async def entry(store: Store, key: bytes) -> Entry:
    found = await store.get(key)
    assert found is not None, f"{key!r} is not there"
    return found


async def pages(
    store: Store, prefix: bytes, *, after: bytes | None = None, revision: int = 0, page: int = 5_000
) -> list[Page]:
    return [p async for p in store.list(prefix, after=after, revision=revision, page=page)]


async def keys(store: Store, prefix: bytes = b"", *, after: bytes | None = None, revision: int = 0) -> list[bytes]:
    return [e.key for p in await pages(store, prefix, after=after, revision=revision) for e in p.entries]


async def revision(store: Store) -> int:
    return (await anext(store.list(b"\0none"))).revision


async def refusal(call: Awaitable[object]) -> type[StoreError]:
    """The kind of the store's refusal."""
    try:
        answer = await call
    except StoreError as error:
        return type(error)
    raise AssertionError(f"not refused: {answer!r}")


@contextlib.asynccontextmanager
async def watching(store: Store, *prefixes: bytes) -> AsyncIterator[View]:
    """A watch whose first snapshot has been read."""
    async with contextlib.aclosing(store.watch(*prefixes)) as news:  # type: ignore[type-var]  # a generator in both
        first = await anext(news)
        assert isinstance(first, Snapshot)
        yield View(news, first)


class View:
    """The state of a reader, built only from what the watch delivered."""

    def __init__(self, news: AsyncIterator[Snapshot | Events], first: Snapshot) -> None:
        self._news = news
        self.held: dict[bytes, bytes] = {}
        self.first = first
        self.heard: list[Snapshot | Events] = []
        self._take(first)

    @property
    def events(self) -> Sequence[Events]:
        return [news for news in self.heard if isinstance(news, Events)]

    async def until(self, revision: int) -> dict[bytes, bytes]:
        """Reads on until it has heard of `revision`; what it holds then."""
        while self.heard[-1].revision < revision:
            self._take(await anext(self._news))
        return self.held

    def _take(self, news: Snapshot | Events) -> None:
        if isinstance(news, Snapshot):
            self.held = {e.key: e.value for e in news.items}
        else:
            for event in news.batch:
                if event.entry is None:
                    del self.held[event.key]
                else:
                    self.held[event.key] = event.entry.value
        self.heard.append(news)
