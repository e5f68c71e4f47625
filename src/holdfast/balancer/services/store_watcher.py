"""Following the store: frontends from etcd, the last complete configuration on disk, intents that peers share.

Nothing counts as complete before every prefix has delivered one whole list of a store that is ours (B24); until then
the configuration that was on disk is served, and nothing is removed. A store of another fleet, or one that was thrown
back, changes nothing here: what was last known stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import structlog

from holdfast.balancer.services import from_store as catalog
from holdfast.balancer.services.from_store import FleetAddresses, StoreItem
from holdfast.balancer.services.resolved import Services, roster
from holdfast.config.sections.balancer import BalancerSettings as Configuration
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.model.calico.host import HOST
from holdfast.model.control.identity import Identity
from holdfast.model.control.intent import INTENT, Intent, IntentName
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined
from holdfast.runtime.paths import write_atomically
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.store.api import Delete, OwnKey, Put, Store, StoreError
from holdfast.store.identity import SeenStore, StoreVerdict, judge, read_identity
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.verify import agree

log = structlog.get_logger(__name__)

GATHER = Duration(milliseconds=50)
LOOK_AGAIN = Duration(seconds=5)


class SavedServices(msgspec.Struct, frozen=True):
    """A complete configuration at a revision of the store, as it lies on disk; addresses are resolved."""

    revision: int
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class ServicesUpdate:
    """What the store says now. `unreadable` are keys that mean something nobody understands."""

    roster: Services
    intents: tuple[Intent, ...]
    unreadable: tuple[str, ...]
    served: SavedServices = field(compare=False)
    """A later revision alone is no news."""


class ServicesWatcher:
    def __init__(
        self, store: Store, region: Region, state: Path, clock: Clock, base: Configuration, own: OwnKey | None = None
    ) -> None:
        self._store = store
        self._region = region
        self._clock = clock
        self._path = state / "balancer.served.json"
        self._memory = StoreMemory(state, "balancer")
        self.base = base
        """The settings of this machine's file."""
        self._items: Mirror[StoreItem] = Mirror(
            store, catalog.prefix(region), lambda key, value: catalog.read(region, key, value), own=own, now=clock.now
        )
        self._hosts = Mirror(store, HOST.prefix(region), HOST.decode, own=own, now=clock.now)
        self._endpoints = Mirror(store, ENDPOINT.prefix(region), ENDPOINT.decode, own=own, now=clock.now)
        self._intents = Mirror(store, INTENT.prefix(region), INTENT.decode, own=own, now=clock.now)
        self._changed = asyncio.Event()
        self._verdict: StoreVerdict | None = None

    def remembered(self) -> Services:
        """What was served last, until the store has spoken."""
        try:
            served = msgspec.json.decode(self._path.read_bytes(), type=SavedServices)
        except FileNotFoundError:
            return Services()
        except (OSError, msgspec.MsgspecError) as error:
            log.error(f"{self._path} cannot be read, nothing is known until the store answers: {error}")
            return Services()
        log.info(f"begins with what was served at revision {served.revision}, until the store has answered")
        return roster(served.configuration)

    async def run(self, tell: Callable[[ServicesUpdate], None]) -> None:
        """Follows the store for ever; `tell` hears of every complete state."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in self._mirrors():
                tasks.create_task(self._follow(mirror))
                tasks.create_task(self._watch(mirror))
            tasks.create_task(self._speak(tell))

    @property
    def synced(self) -> bool:
        return self._verdict is StoreVerdict.OURS and all(mirror.synced for mirror in self._mirrors())

    def all(self) -> tuple[Intent, ...]:
        """Every wish about a frontend or a backend, also those that come from draining its host."""
        config = self._configuration()
        fleet = self._fleet(config)
        return tuple(catalog.intents(self._intents.objects, config, fleet, self._clock.wall()))

    async def keep(self, intent: Intent, instead_of: tuple[IntentName, ...] = ()) -> None:
        others = [Delete(INTENT.key(self._region, name)) for name in instead_of if name != intent.name]
        await self._write([*others, Put(INTENT.key(self._region, intent.name), INTENT.encode(intent))])

    async def drop(self, names: tuple[IntentName, ...]) -> None:
        await self._write([Delete(INTENT.key(self._region, name)) for name in names])

    async def refresh(self) -> None:
        """Returns when a linearizable list of what is served is exactly what is known here."""
        await agree(self._store, catalog.prefix(self._region), self._items)

    async def _write(self, operations: Sequence[Put | Delete]) -> None:
        try:
            await self._store.txn([], operations)
        except (Away, StoreError) as error:
            raise Declined(f"not done, because it could not be kept: {error}") from error

    def _mirrors(self) -> tuple[Mirror[Any], ...]:
        return self._items, self._hosts, self._endpoints, self._intents

    async def _follow(self, mirror: Mirror[Any]) -> None:
        await mirror.keep_running(
            lambda refusal: log.error(f"the store cannot be followed, what was last known is served: {refusal}"),
            LOOK_AGAIN,
        )

    async def _watch(self, mirror: Mirror[Any]) -> None:
        await mirror.wait_synced()
        self._changed.set()
        while True:
            await mirror.take()
            self._changed.set()

    async def _speak(self, tell: Callable[[ServicesUpdate], None]) -> None:
        told: ServicesUpdate | None = None
        while True:
            await self._rest()
            # Judged anew each time: a store can become another one, and a bad value that goes is no change of objects.
            if await self._is_ours() and self.synced and (news := self._news()) != told:
                self._remember(news.served)
                tell(news)
                told = news

    async def _rest(self) -> None:
        """Until something has changed, and what changes with it; or for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN.total_seconds()):
                await self._changed.wait()
            await asyncio.sleep(GATHER.total_seconds())
        self._changed.clear()

    async def _is_ours(self) -> bool:
        """Judges the store by what is remembered of it; a store that is not ours is said once, and left alone."""
        try:
            remembered, found = self._memory.recall(), await read_identity(self._store, self._region)
        except (Away, StoreError):
            return False
        except MemoryUnreadable as sentence:
            log.error(str(sentence))
            return False
        judgement = judge(remembered, found)
        if judgement.verdict is StoreVerdict.OURS and isinstance(found.identity, Identity):
            known = remembered or SeenStore(found.identity.fleet, found.identity.epoch, 0)
            self._memory.keep(known.seen(found.identity, found.revision))
        elif judgement.verdict is not self._verdict:
            log.error(f"{judgement.sentence}; what was last known is served")
        self._verdict = judgement.verdict
        return judgement.verdict is StoreVerdict.OURS

    def _news(self) -> ServicesUpdate:
        config = self._configuration()
        fleet = self._fleet(config)
        revision = max(mirror.revision for mirror in self._mirrors())
        unreadable = tuple(key.decode(errors="backslashreplace") for key in self._items.unreadable)
        return ServicesUpdate(
            roster(config, fleet.locate), self.all(), unreadable, SavedServices(revision, _resolved(config, fleet))
        )

    def _configuration(self) -> Configuration:
        return catalog.configured(self.base, self._items.objects)

    def _fleet(self, config: Configuration) -> FleetAddresses:
        """The hosts and endpoints that a backend names: of the many in a fleet, no others matter here."""
        hosts = {one.host: HOST.key(self._region, one.host) for one in config.backends.values() if one.host}
        endpoints = {one.endpoint for one in config.backends.values() if one.endpoint}
        known, everything = self._hosts.objects, self._endpoints.objects.values() if endpoints else ()
        return FleetAddresses(
            {name: known[key] for name, key in hosts.items() if key in known},
            {name: one for one in everything for name in _called(one) if name in endpoints},
        )

    def _remember(self, served: SavedServices) -> None:
        try:
            write_atomically(self._path, msgspec.json.encode(served))
        except OSError as error:
            log.error(f"{self._path} cannot be written, a restart without the store would know nothing: {error}")


def _called(endpoint: Endpoint) -> tuple[str, str]:
    """How a backend may name it: as OpenStack does, by its port alone, or as the inventory does."""
    return endpoint.spec.endpoint, endpoint.name.individual


def _resolved(config: Configuration, fleet: FleetAddresses) -> Configuration:
    """The same with addresses instead of hosts and endpoints: they may not be known at the next start."""
    backends = {
        name: msgspec.structs.replace(one, address=address, host=None, endpoint=None)
        for name, one in config.backends.items()
        if (address := fleet.locate(one)) is not None
    }
    return msgspec.structs.replace(config, backends=backends)
