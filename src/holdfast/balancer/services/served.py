"""Served objects: what a balancer serves, each object with its store revision, and what replaces it under a verdict.

Of a store that is ours everything is taken. A store that is being filled may add. One that was restored from a backup
may add, and replace an object by a newer one: one of a higher revision than the served one, or written after the
restore was noticed. It removes nothing and replaces nothing by an older object. What operators asked for stays in force
until a later request ends it, and a request that came back with the backup does not count (C69).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.balancer.services import from_store
from holdfast.balancer.services.from_store import FleetAddresses, StoreItem
from holdfast.balancer.vip import Vip
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.frontend import Frontend
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK, SETTINGS_FIELDS
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.model.calico.host import HOST, Host
from holdfast.model.control.intent import INTENT, Intent, IntentName

K = TypeVar("K")
T = TypeVar("T")

_ITEM_KINDS: Mapping[str, Kind[Any, str]] = {
    SETTINGS_FIELDS[kind.name]: kind for kind in (HEALTH_CHECK, BACKEND, FRONTEND)
}


class Acceptance(Enum):
    """Part of the store's contents that a balancer accepts."""

    ALL = "everything"
    ADDED = "what is not served yet"
    NEWER = "what is not served yet, or is newer"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """An object and the store revision of its last write."""

    value: T
    revision: int


class SavedObject(msgspec.Struct, frozen=True):
    revision: int
    value: msgspec.Raw


class SavedServices(msgspec.Struct, frozen=True):
    """Everything that is served, as saved on disk: each object by its key in the store."""

    revision: int
    objects: dict[str, SavedObject]
    complete: bool
    """False if it was begun with a store in doubt, so that more may be programmed than is known here."""


@dataclass(frozen=True)
class ServedObjects:
    """Services, the hosts and endpoints that their backends name, and intents about them."""

    items: Mapping[bytes, Versioned[StoreItem]] = field(default_factory=dict)
    hosts: Mapping[str, Versioned[Host]] = field(default_factory=dict)
    endpoints: Mapping[str, Versioned[Endpoint]] = field(default_factory=dict)
    """By the name that a backend uses."""
    intents: Mapping[IntentName, Versioned[Intent]] = field(default_factory=dict)

    def configuration(self, base: BalancerSettings) -> BalancerSettings:
        return from_store.configured(base, values(self.items))

    @property
    def fleet(self) -> FleetAddresses:
        return FleetAddresses(values(self.hosts), values(self.endpoints))

    def saved(self, region: Region, revision: int, *, complete: bool) -> SavedServices:
        """Encode everything for the disk."""
        found = {key: (_encoded(one.value), one.revision) for key, one in self.items.items()}
        found |= {HOST.key(region, name): (HOST.encode(one.value), one.revision) for name, one in self.hosts.items()}
        for each in self.endpoints.values():
            found[ENDPOINT.key(region, each.value.name)] = ENDPOINT.encode(each.value), each.revision
        for name, intent in self.intents.items():
            found[INTENT.key(region, name)] = INTENT.encode(intent.value), intent.revision
        objects = {key.decode(): SavedObject(at, msgspec.Raw(value)) for key, (value, at) in found.items()}
        return SavedServices(revision, objects, complete)


def values(versioned: Mapping[K, Versioned[T]]) -> dict[K, T]:
    """Drop the revisions."""
    return {key: one.value for key, one in versioned.items()}


def decode_saved(region: Region, saved: SavedServices) -> ServedObjects:
    """Decode what was saved. An object that cannot be read is left out."""
    items: dict[bytes, Versioned[StoreItem]] = {}
    hosts: dict[str, Versioned[Host]] = {}
    endpoints: dict[str, Versioned[Endpoint]] = {}
    intents: dict[IntentName, Versioned[Intent]] = {}
    for text, one in saved.objects.items():
        key, value = text.encode(), bytes(one.value)
        item = from_store.read(region, key, value)
        host, endpoint, intent = (kind.parse(key, region) for kind in (HOST, ENDPOINT, INTENT))
        if isinstance(item, StoreItem):
            items[key] = Versioned(item, one.revision)
        elif isinstance(host, str) and not isinstance(read := HOST.decode(key, value), Bad):
            hosts[host] = Versioned(read, one.revision)
        elif not isinstance(endpoint, Bad) and not isinstance(found := ENDPOINT.decode(key, value), Bad):
            endpoints |= dict.fromkeys(names_of(found), Versioned(found, one.revision))
        elif not isinstance(intent, Bad) and not isinstance(asked := INTENT.decode(key, value), Bad):
            intents[asked.name] = Versioned(asked, one.revision)
    return ServedObjects(items, hosts, endpoints, intents)


def names_of(endpoint: Endpoint) -> tuple[str, str]:
    """Names that a backend may use for an endpoint: the port alone, as in OpenStack, or the inventory's name."""
    return endpoint.spec.endpoint, endpoint.name.individual


def newest(found: Iterable[tuple[K, Versioned[T]]]) -> dict[K, Versioned[T]]:
    """Of two objects with one name (an endpoint that moved), take the one that was written last."""
    taken: dict[K, Versioned[T]] = {}
    for name, one in found:
        if name not in taken or taken[name].revision < one.revision:
            taken[name] = one
    return taken


def merge_objects(
    served: Mapping[K, Versioned[T]], found: Mapping[K, Versioned[T]], accepted: Acceptance, noticed: int
) -> dict[K, Versioned[T]]:
    """Combine what is served with what the store holds. `noticed` is the store's revision when its restore was noticed,
    0 if that is not known."""
    if accepted is Acceptance.ALL:
        return dict(found)
    if accepted is Acceptance.NONE:
        return dict(served)

    def is_newer(one: Versioned[T], than: Versioned[T]) -> bool:
        return one.revision > than.revision or 0 < noticed < one.revision

    takes_newer = accepted is Acceptance.NEWER
    taken = {
        key: one
        for key, one in found.items()
        if (old := served.get(key)) is None or (takes_newer and is_newer(one, old))
    }
    return {**served, **taken}


def merge_items(
    served: Mapping[bytes, Versioned[StoreItem]],
    found: Mapping[bytes, Versioned[StoreItem]],
    accepted: Acceptance,
    noticed: int,
) -> dict[bytes, Versioned[StoreItem]]:
    """Combine the services. In doubt, a frontend that is added does not take the VIP of one that is served."""
    merged = merge_objects(served, found, accepted, noticed)
    if accepted is Acceptance.ALL:
        return merged
    taken = {vip for key in served if (vip := _vip(merged[key].value)) is not None}
    return {key: one for key, one in merged.items() if key in served or _vip(one.value) not in taken}


def merge_intents(  # protection: C69
    served: Mapping[IntentName, Versioned[Intent]],
    found: Mapping[IntentName, Versioned[Intent]],
    accepted: Acceptance,
    noticed: int,
) -> dict[IntentName, Versioned[Intent]]:
    """Combine the intents in force with those of the store: of two, the later request counts."""
    if accepted is Acceptance.ALL:
        return dict(found)
    if accepted is Acceptance.NONE:
        return dict(served)
    from_backup = noticed if accepted is Acceptance.NEWER else 0
    taken = {
        name: one
        for name, one in found.items()
        if (one.revision > from_backup if (old := served.get(name)) is None else one.value.since > old.value.since)
    }
    return {**served, **taken}


def _vip(item: StoreItem) -> Vip | None:
    section = item.section
    return Vip.of(section.address, section.protocol, section.port) if isinstance(section, Frontend) else None


def _encoded(item: StoreItem) -> bytes:
    return _ITEM_KINDS[item.group].encode(item.section)
