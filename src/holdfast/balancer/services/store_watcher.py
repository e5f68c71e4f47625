"""Watches the store for services and shared intents, and saves what is served on disk.

The configuration is complete only when every prefix has delivered one whole list from our own store (B24); until then
the saved services are served, and nothing is removed. A store of another fleet, or one without an identity, changes
nothing. A store that is being filled, or was restored from a backup, removes nothing: `served` has the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from holdfast.balancer.services import from_store
from holdfast.balancer.services.from_store import StoreItem
from holdfast.balancer.services.resolved import Services, resolve_services
from holdfast.balancer.services.served import (
    Acceptance,
    SavedServices,
    ServedObjects,
    Versioned,
    decode_saved,
    merge_intents,
    merge_items,
    merge_objects,
    names_of,
    newest,
    values,
)
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.frontend import Frontend
from holdfast.config.sections.vpp_limits import alone
from holdfast.model.base.bad import Bad, BadReason, shortened
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.control.intent import INTENT, Intent, IntentName
from holdfast.model.control.scope import ScopeKind
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined
from holdfast.runtime.paths import write_atomically
from holdfast.runtime.store_guard import Offload, StoreGuard
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.store.api import Aspect, Compare, Delete, OwnKey, Put, Store, StoreError, named
from holdfast.store.identity import Judgement, StoreVerdict
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.verify import verify_mirror

log = structlog.get_logger(__name__)

T = TypeVar("T")

_GATHER = Duration(milliseconds=50)
_RECHECK = Duration(seconds=5)
_DELIVERY = Duration(seconds=1)
"""Time that a watch may take to deliver an own write."""
_ACCEPTED: Mapping[StoreVerdict, Acceptance] = {
    StoreVerdict.OURS: Acceptance.ALL,
    StoreVerdict.INVENTORY_RESTORED: Acceptance.ALL,
    StoreVerdict.FILLING: Acceptance.ADDED,
    StoreVerdict.RESTORED: Acceptance.NEWER,
}
"""Part of a store that is taken under each verdict; nothing of any other store."""
_SCOPES = (
    ScopeKind.FLEET,
    ScopeKind.FRONTEND,
    ScopeKind.POOL,
    ScopeKind.BACKEND,
    ScopeKind.MEMBER,
    ScopeKind.HOST,
)


@dataclass(frozen=True, slots=True)
class ServicesUpdate:
    """One state to serve. `unreadable` has the keys of bad values."""

    services: Services
    intents: tuple[Intent, ...]
    unreadable: tuple[str, ...]
    complete: bool
    """False if the store may lack objects that are programmed and that nothing else is known of: none is removed."""
    revision: int = field(compare=False)
    """Not compared: a later revision alone is no change."""


class ServicesWatcher:
    def __init__(
        self,
        store: Store,
        region: Region,
        state: Path,
        clock: Clock,
        base: BalancerSettings,
        own: OwnKey | None = None,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self._store = store
        self._region = region
        self._clock = clock
        self._path = state / "balancer.served.json"
        self._offload = offload
        self._guard = StoreGuard(store, region, StoreMemory(state, "balancer"), offload)
        self._base = base
        """Settings of this machine's configuration file."""
        self._items: Mirror[StoreItem] = Mirror(
            store,
            from_store.prefix(region),
            self._read,
            own=own,
            now=clock.now,
        )
        self._hosts = Mirror(store, HOST.prefix(region), HOST.decode, own=own, now=clock.now)
        self._endpoints = Mirror(store, ENDPOINT.prefix(region), ENDPOINT.decode, own=own, now=clock.now)
        self._intents = Mirror(store, INTENT.prefix(region), INTENT.decode, own=own, now=clock.now)
        self._changed = asyncio.Event()
        self._served = ServedObjects()
        self._knows_served = False
        """True once it is known what was served, from the disk or from a store that is ours."""
        self._saving = asyncio.Lock()
        self._unsaved = False
        """True while the disk takes no writes; saved again with the next check of the store."""
        self._lists = 0
        self._unreadable_memory: str | None = None

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
        self._served, self._knows_served = decode_saved(self._region, saved), saved.complete
        return self._services()

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
    def doubt(self) -> Judgement | None:
        """The judgement, while the store is not taken as it is."""
        if self._unreadable_memory is not None:
            return Judgement(StoreVerdict.RESTORED, self._unreadable_memory)
        judgement = self._guard.judgement
        return None if judgement is None or self._acceptance(judgement) is Acceptance.ALL else judgement

    def all(self) -> tuple[Intent, ...]:
        """All intents about the fleet, frontends and backends, including those by draining a host."""
        served = self._served
        config = served.configuration(self._base)
        return tuple(from_store.intents(values(served.intents), config, served.fleet, self._clock.wall()))

    def drained(self) -> Mapping[str, frozenset[str]]:
        """Drained hosts, each with the configured names of the backends on it."""
        served = self._served
        config = served.configuration(self._base)
        return from_store.drained(values(served.intents), config, served.fleet, self._clock.wall())

    async def keep(self, intent: Intent, instead_of: Collection[IntentName] = ()) -> None:
        others = [self._end(name) for name in instead_of if name != intent.name]
        await self._write([*others, Put(INTENT.key(self._region, intent.name), INTENT.encode(intent))])

    async def drop(self, names: Collection[IntentName], who: str) -> bool:
        wall, known = self._clock.wall(), [self._served.intents.get(name) for name in names]
        await self._write([self._end(name) for name in names])
        return any(one is not None and one.value.holds(wall) for one in known)

    def _end(self, name: IntentName) -> Put | Delete:
        """End an intent. While the store is in doubt, other balancers remember it and do not follow a delete: they get
        a later request that is over (C69)."""
        key, known = INTENT.key(self._region, name), self._served.intents.get(name)
        if self.doubt is None or known is None:
            return Delete(key)
        now = self._clock.wall()
        return Put(key, INTENT.encode(msgspec.structs.replace(known.value, since=now, until=now)))

    async def refresh(self) -> None:
        """Return when a linearizable list of the services equals the mirror."""
        await verify_mirror(self._store, self._items)

    async def _refresh_all(self) -> None:
        """Return when a linearizable list of everything watched equals the mirrors. Raises `Away`."""
        for mirror in self._mirrors():
            await verify_mirror(self._store, mirror)

    async def _write(self, operations: Sequence[Put | Delete]) -> None:
        """Write intents, wait for the watch to deliver them, and save them."""
        doubt = self.doubt
        if doubt is not None and doubt.verdict is StoreVerdict.FOREIGN:
            raise Declined(f"nothing was changed: {doubt.sentence}")
        try:
            written = await self._store.txn([], operations)
        except (Away, StoreError) as error:
            raise Declined(f"nothing was changed, because the store did not take it: {error}") from error
        if any(written.results):  # else nothing was deleted, and no event will come
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DELIVERY.total_seconds()):
                    await self._intents.wait_seen(written.revision)
        intents = dict(self._served.intents)
        for one in operations:
            name = INTENT.parse(one.key, self._region)
            assert isinstance(name, IntentName)
            intents.pop(name, None)
            asked = INTENT.decode(one.key, one.value) if isinstance(one, Put) else None
            if isinstance(asked, Intent):
                intents[name] = Versioned(asked, written.revision)
        self._served = replace(self._served, intents=intents)
        await self._save()

    def _mirrors(self) -> tuple[Mirror[Any], ...]:
        return self._items, self._hosts, self._endpoints, self._intents

    async def _run_mirror(self, mirror: Mirror[Any]) -> None:
        def refused(error: StoreError) -> None:
            prefix = named(mirror.prefixes)
            log.error("cannot watch the store; keeping the last known services", prefix=prefix, error=str(error))

        await mirror.keep_running(refused, _RECHECK)

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
            accepted = await self._judge()
            if accepted is Acceptance.NONE or not all(mirror.synced for mirror in self._mirrors()):
                continue
            update = self._update(accepted)
            await self._put_back()
            if update != last or self._unsaved:
                await self._save()
            if update != last:
                on_update(update)
                last = update

    async def _wait_for_change(self) -> None:
        """Wait for a change and for those that follow it closely, at most for `_RECHECK`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECHECK.total_seconds()):
                await self._changed.wait()
            await asyncio.sleep(_GATHER.total_seconds())
        self._changed.clear()

    async def _put_back(self) -> None:
        """Write intents in force into a store of ours that has lost them, for the time after the verdict (C69). Without
        an identity the store counts as empty, and must stay so."""
        if self.doubt is None or not self._guard.fleet:
            return
        wall, stored = self._clock.wall(), self._intents.objects
        lost = {INTENT.key(self._region, name): one.value for name, one in self._served.intents.items()}
        for key, intent in lost.items():
            if key in stored or not intent.holds(wall):
                continue
            try:
                await self._store.txn([Compare(key, Aspect.CREATE_REVISION, 0)], [Put(key, INTENT.encode(intent))])
            except (Away, StoreError) as error:
                log.debug("cannot write an intent back; retrying", intent=str(intent.scope), error=str(error))

    async def _judge(self) -> Acceptance:
        """Compare the identity of the store with the one seen before; return what may be taken of it."""
        lists = self._count_lists()
        self._guard.follow(self._mirrors())
        if lists != self._lists:
            self._guard.forget_history()
        try:
            reading = await self._guard.read()
            if self._guard.is_released_by(reading):
                await self._refresh_all()
            if self._count_lists() != lists:
                return self._judge_again()
            judgement = await self._guard.take(reading, self._clock.now())
        except (Away, StoreError):
            return Acceptance.NONE
        except MemoryUnreadable as sentence:
            if self._unreadable_memory is None:
                log.error("store identity check failed; keeping the last known services", error=str(sentence))
            self._unreadable_memory = str(sentence)
            return Acceptance.NONE
        self._unreadable_memory, self._lists = None, lists
        return self._acceptance(judgement) if self._count_lists() == lists else self._judge_again()

    def _judge_again(self) -> Acceptance:
        """Take nothing yet: a new list may be that of another store than the one that was read."""
        self._changed.set()
        return Acceptance.NONE

    def _read(self, key: bytes, value: bytes) -> StoreItem | Bad:
        """Read one value; one that the dataplane here cannot do is bad, so that the last good one stays."""
        item = from_store.read(self._region, key, value)
        dataplane = self._base.dataplane
        if isinstance(item, StoreItem) and isinstance(item.section, Frontend) and dataplane.kind == "vpp":
            for conflict in alone(item.name, item.section, dataplane.vpp.table_length):
                return Bad(key, BadReason.WRONG_SHAPE, shortened(conflict.sentence))
        return item

    def _count_lists(self) -> int:
        return sum(mirror.lists for mirror in self._mirrors())

    def _acceptance(self, judgement: Judgement) -> Acceptance:
        return _ACCEPTED.get(judgement.verdict, Acceptance.NONE)

    def _update(self, accepted: Acceptance) -> ServicesUpdate:
        """Take what may be taken of the store, and return what is to be served now."""
        self._served = self._merged(accepted, self._noticed() if accepted is Acceptance.NEWER else 0)
        self._knows_served |= accepted is Acceptance.ALL
        unreadable = tuple(key.decode(errors="backslashreplace") for key in self._items.unreadable)
        return ServicesUpdate(self._services(), self.all(), unreadable, self._knows_served, self._revision)

    @property
    def _revision(self) -> int:
        return max(mirror.revision for mirror in self._mirrors())

    def _services(self) -> Services:
        return resolve_services(self._served.configuration(self._base), self._served.fleet.locate)

    def _noticed(self) -> int:
        """Revision of the store when its restore was noticed; 0 if that is not known."""
        try:
            remembered = self._guard.memory.load()
        except MemoryUnreadable:
            return 0
        return remembered.noticed if remembered is not None else 0

    def _merged(self, accepted: Acceptance, noticed: int) -> ServedObjects:
        served = self._served
        items = merge_items(served.items, _versioned(self._items), accepted, noticed)
        backends = from_store.configured(self._base, values(items)).backends.values()
        hosts = {HOST.key(self._region, one.host): one.host for one in backends if one.host}
        names = {one.endpoint for one in backends if one.endpoint}
        found_hosts = {hosts[key]: one for key, one in _versioned(self._hosts, hosts).items()}
        endpoints = _versioned(self._endpoints) if names else {}
        found_endpoints = newest(
            (name, one) for one in endpoints.values() for name in names_of(one.value) if name in names
        )
        intents = {
            one.value.name: one for one in _versioned(self._intents).values() if one.value.scope.target in _SCOPES
        }
        return ServedObjects(
            items,
            _only(merge_objects(served.hosts, found_hosts, accepted, noticed), hosts.values()),
            _only(merge_objects(served.endpoints, found_endpoints, accepted, noticed), names),
            merge_intents(served.intents, intents, accepted, noticed),
        )

    async def _save(self) -> None:
        """Save the services, off the loop. A disk that takes no writes costs a restart without the store, nothing
        else."""
        try:
            async with self._saving:
                saved = self._served.saved(self._region, self._revision, complete=self._knows_served)
                await self._offload(lambda: write_atomically(self._path, msgspec.json.encode(saved)))
        except OSError as error:
            if not self._unsaved:
                log.error(
                    "cannot save the services; a restart without the store would serve older ones; retrying",
                    path=str(self._path),
                    error=str(error),
                )
            self._unsaved = True
            return
        if self._unsaved:
            log.info("services saved again", path=str(self._path))
        self._unsaved = False


def _versioned(mirror: Mirror[T], keys: Collection[bytes] | None = None) -> dict[bytes, Versioned[T]]:
    """The last good objects of a mirror, all or those of `keys`, each with its revision."""
    objects = mirror.objects
    wanted = objects if keys is None else [key for key in keys if key in objects]
    return {key: Versioned(objects[key], mirror.good_revision(key)) for key in wanted}


def _only(objects: Mapping[str, Versioned[T]], names: Collection[str]) -> dict[str, Versioned[T]]:
    """Drop what no backend names."""
    return {name: one for name, one in objects.items() if name in names}
