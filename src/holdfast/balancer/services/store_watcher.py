"""Watches the store for services and shared intents, and saves the last complete configuration on disk.

The configuration is complete only when every prefix has delivered one whole list from our own store (B24); until then
the saved configuration is served, and nothing is removed. A store of another fleet, or one that was restored from a
backup, changes nothing: the last known services stay.
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

from holdfast.balancer.services import from_store
from holdfast.balancer.services.from_store import FleetAddresses, StoreItem
from holdfast.balancer.services.resolved import Services, resolve_services
from holdfast.config.sections.balancer import BalancerSettings
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
from holdfast.store.identity import SeenStore, StoreVerdict, classify_store, read_identity
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.verify import verify_mirror

log = structlog.get_logger(__name__)

_GATHER = Duration(milliseconds=50)
_RECHECK = Duration(seconds=5)


class SavedServices(msgspec.Struct, frozen=True):
    """A complete configuration at a revision of the store, as saved on disk; addresses are resolved."""

    revision: int
    configuration: BalancerSettings


@dataclass(frozen=True, slots=True)
class ServicesUpdate:
    """One complete state of the store. `unreadable` has the keys of bad values."""

    services: Services
    intents: tuple[Intent, ...]
    unreadable: tuple[str, ...]
    saved: SavedServices = field(compare=False)
    """Not compared: a later revision alone is no change."""


class ServicesWatcher:
    def __init__(
        self, store: Store, region: Region, state: Path, clock: Clock, base: BalancerSettings, own: OwnKey | None = None
    ) -> None:
        self._store = store
        self._region = region
        self._clock = clock
        self._path = state / "balancer.served.json"
        self._memory = StoreMemory(state, "balancer")
        self._base = base
        """Settings of this machine's configuration file."""
        self._items: Mirror[StoreItem] = Mirror(
            store,
            from_store.prefix(region),
            lambda key, value: from_store.read(region, key, value),
            own=own,
            now=clock.now,
        )
        self._hosts = Mirror(store, HOST.prefix(region), HOST.decode, own=own, now=clock.now)
        self._endpoints = Mirror(store, ENDPOINT.prefix(region), ENDPOINT.decode, own=own, now=clock.now)
        self._intents = Mirror(store, INTENT.prefix(region), INTENT.decode, own=own, now=clock.now)
        self._changed = asyncio.Event()
        self._verdict: StoreVerdict | None = None

    def saved_services(self) -> Services:
        """Services to start with, from the last run, until the store has answered."""
        try:
            saved = msgspec.json.decode(self._path.read_bytes(), type=SavedServices)
        except FileNotFoundError:
            return Services()
        except (OSError, msgspec.MsgspecError) as error:
            log.error(
                "cannot read the saved services; serving starts when the store answers",
                path=str(self._path),
                error=str(error),
            )
            return Services()
        log.info("starting with the saved services until the store answers", revision=saved.revision)
        return resolve_services(saved.configuration)

    def reload(self, base: BalancerSettings) -> None:
        """Take new settings, to which the services of the store are added."""
        self._base = base

    async def run(self, on_update: Callable[[ServicesUpdate], None]) -> None:
        """Watch the store for ever; `on_update` gets every complete state."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in self._mirrors():
                tasks.create_task(self._run_mirror(mirror))
                tasks.create_task(self._note_changes(mirror))
            tasks.create_task(self._publish(on_update))

    @property
    def synced(self) -> bool:
        return self._verdict is StoreVerdict.OURS and all(mirror.synced for mirror in self._mirrors())

    def all(self) -> tuple[Intent, ...]:
        """All intents about frontends and backends, including those by draining a host."""
        config = self._configuration()
        fleet = self._fleet(config)
        return tuple(from_store.intents(self._intents.objects, config, fleet, self._clock.wall()))

    async def keep(self, intent: Intent, instead_of: tuple[IntentName, ...] = ()) -> None:
        others = [Delete(INTENT.key(self._region, name)) for name in instead_of if name != intent.name]
        await self._write([*others, Put(INTENT.key(self._region, intent.name), INTENT.encode(intent))])

    async def drop(self, names: tuple[IntentName, ...]) -> None:
        await self._write([Delete(INTENT.key(self._region, name)) for name in names])

    async def refresh(self) -> None:
        """Return when a linearizable list of the services equals the mirror."""
        await verify_mirror(self._store, from_store.prefix(self._region), self._items)

    async def _write(self, operations: Sequence[Put | Delete]) -> None:
        try:
            await self._store.txn([], operations)
        except (Away, StoreError) as error:
            raise Declined(f"nothing was changed, because the store did not take it: {error}") from error

    def _mirrors(self) -> tuple[Mirror[Any], ...]:
        return self._items, self._hosts, self._endpoints, self._intents

    async def _run_mirror(self, mirror: Mirror[Any]) -> None:
        await mirror.keep_running(
            lambda refusal: log.error("cannot watch the store; keeping the last known services", error=str(refusal)),
            _RECHECK,
        )

    async def _note_changes(self, mirror: Mirror[Any]) -> None:
        await mirror.wait_synced()
        self._changed.set()
        while True:
            await mirror.take()
            self._changed.set()

    async def _publish(self, on_update: Callable[[ServicesUpdate], None]) -> None:
        last: ServicesUpdate | None = None
        while True:
            await self._wait_for_change()
            # Judged each time: a store can be replaced, and a bad value that disappears is no change of objects.
            if await self._is_ours() and self.synced and (update := self._update()) != last:
                self._save(update.saved)
                on_update(update)
                last = update

    async def _wait_for_change(self) -> None:
        """Wait for a change and for those that follow it closely, at most for `_RECHECK`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECHECK.total_seconds()):
                await self._changed.wait()
            await asyncio.sleep(_GATHER.total_seconds())
        self._changed.clear()

    async def _is_ours(self) -> bool:
        """Compare the identity of the store with the one seen before; logs a store that is not ours once."""
        try:
            remembered, found = self._memory.load(), await read_identity(self._store, self._region)
        except (Away, StoreError):
            return False
        except MemoryUnreadable as sentence:
            log.error("store identity check failed; keeping the last known services", error=str(sentence))
            return False
        judgement = classify_store(remembered, found)
        if judgement.verdict is StoreVerdict.OURS and isinstance(found.identity, Identity):
            known = remembered or SeenStore(found.identity.fleet, found.identity.epoch, 0)
            self._memory.keep(known.seen(found.identity, found.revision))
        elif judgement.verdict is not self._verdict:
            log.error("cannot load services; keeping the last known ones", reason=judgement.sentence)
        self._verdict = judgement.verdict
        return judgement.verdict is StoreVerdict.OURS

    def _update(self) -> ServicesUpdate:
        config = self._configuration()
        fleet = self._fleet(config)
        revision = max(mirror.revision for mirror in self._mirrors())
        unreadable = tuple(key.decode(errors="backslashreplace") for key in self._items.unreadable)
        return ServicesUpdate(
            resolve_services(config, fleet.locate),
            self.all(),
            unreadable,
            SavedServices(revision, _resolved(config, fleet)),
        )

    def _configuration(self) -> BalancerSettings:
        return from_store.configured(self._base, self._items.objects)

    def _fleet(self, config: BalancerSettings) -> FleetAddresses:
        """Select the hosts and endpoints that a backend names."""
        hosts = {one.host: HOST.key(self._region, one.host) for one in config.backends.values() if one.host}
        endpoints = {one.endpoint for one in config.backends.values() if one.endpoint}
        known, everything = self._hosts.objects, self._endpoints.objects.values() if endpoints else ()
        return FleetAddresses(
            {name: known[key] for name, key in hosts.items() if key in known},
            {name: one for one in everything for name in _names(one) if name in endpoints},
        )

    def _save(self, saved: SavedServices) -> None:
        try:
            write_atomically(self._path, msgspec.json.encode(saved))
        except OSError as error:
            log.error(
                "cannot save the services; a restart without the store would serve nothing",
                path=str(self._path),
                error=str(error),
            )


def _names(endpoint: Endpoint) -> tuple[str, str]:
    """Names that a backend may use for an endpoint: the port alone, as in OpenStack, or the inventory's name."""
    return endpoint.spec.endpoint, endpoint.name.individual


def _resolved(config: BalancerSettings, fleet: FleetAddresses) -> BalancerSettings:
    """Replace hosts and endpoints by addresses, because they may not be known at the next start."""
    backends = {
        name: msgspec.structs.replace(one, address=address, host=None, endpoint=None)
        for name, one in config.backends.items()
        if (address := fleet.locate(one)) is not None
    }
    return msgspec.structs.replace(config, backends=backends)
