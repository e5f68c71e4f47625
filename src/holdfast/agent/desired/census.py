"""Comparison of a source with the leader's census (N28).

The brake holds many deletes at once, because a list that lost objects looks just like that. The census says what the
inventory has. A list of the store at its revision that equals it proves that what it lacks is gone; a host that was
away while a third of the fleet changed needs no operator. The sums are of keys alone: a delete that follows from the
value of an object that is still listed is not proven, nor is one that follows from a mirror that lost an object. It is
read only while a brake is closed, and compared once.

An agent that watches its own host only (`routing: bgp`) compares the keys of this host, with a census that the leader
makes for it alone. Listing the whole fleet would cost more than everything else that such an agent reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

from holdfast.agent.claims import Owner
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST, region_of
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.fleet.census import CENSUS, HOST_CENSUS, Census, KeySum
from holdfast.reconcile import Away
from holdfast.store.api import Entry, Keys, Store, StoreError, span
from holdfast.store.host_keys import keys_of

_PAGE = 10_000


class CensusComparison:
    def __init__(self, store: Store, region: Region, host: str, *, is_own: bool = False) -> None:
        """`host` is the name of this one; with `is_own`, nothing but its own keys is compared."""
        self._store = store
        self._region = region
        self._host = host
        self._kind, name = (HOST_CENSUS, host) if is_own else (CENSUS, "census")
        self._key = self._kind.key(region, name)
        own = keys_of(host, region) if is_own else None
        self._migrations: Keys = own.migrations if own else MIGRATION.prefix(region)
        self._hosts: Keys = own.host if own else HOST.prefix(region)
        self._endpoints: Keys = own.endpoints if own else ENDPOINT.prefix(region)
        self._compared: Census | None = None
        self._forgotten = 0
        """Number of times that the proof was dropped."""
        self.proven = 0
        """Revision up to which the census confirmed a list; 0 for none."""
        self._absent: frozenset[bytes] = frozenset()
        """Keys that this list lacks, of those that were asked about."""

    async def compare(self, owners: Collection[Owner], verify: Callable[[], Awaitable[None]]) -> bool:
        """Read the census and compare a list with it, to learn which of these owners are gone; return whether it proves
        more than before. `verify` confirms the mirror from which the deletes follow. Raises `Away`."""
        forgotten = self._forgotten
        asked = {key for owner in owners for keys in self._keys_of(owner) for key in keys}
        try:
            entry = await self._store.get(self._key)
            census = None if entry is None else self._kind.decode(self._key, entry.value)
            if not isinstance(census, Census) or census == self._compared:
                return False
            sums = await self._list(census.revision, asked)
        except StoreError as error:  # compacted: the leader publishes another one
            raise Away("store", str(error)) from error
        proves = equals(census, sums) and census.revision > self.proven
        if proves:
            await verify()
        if forgotten != self._forgotten:
            return False  # this list may be of the store before it was restored
        self._compared = census
        if proves:
            self.proven, self._absent = census.revision, frozenset(asked)
        return proves

    def is_gone(self, owner: Owner) -> bool:
        """Return whether the confirmed list lacks what a claim of this owner followed from."""
        return any(self._absent.issuperset(keys) for keys in self._keys_of(owner))

    def forget(self) -> None:
        """Drop the proof, also one that is being made: the store may have been restored, or be another one."""
        self._forgotten += 1
        self._compared, self.proven, self._absent = None, 0, frozenset()

    def _keys_of(self, owner: Owner) -> Iterator[tuple[bytes, ...]]:
        """Yield groups of store keys: without all keys of any one group, the owner has no claims. A group with a key
        that is not listed proves nothing."""
        return (keys for keys in self._groups(owner) if all(map(self._is_listed, keys)))

    def _is_listed(self, key: bytes) -> bool:
        return any(key in span(each) for each in (self._migrations, self._hosts, self._endpoints))

    def _groups(self, owner: Owner) -> Iterator[tuple[bytes, ...]]:
        is_here = owner.host == self._host
        if owner.endpoint:
            name = owner.endpoint.encode()
            endpoint, migration = (kind.prefix(self._region) + name for kind in (ENDPOINT, MIGRATION))
            yield (endpoint, migration) if is_here else (endpoint,)  # a migration alone announces one here
        if owner and not is_here:
            yield (HOST.key(self._region, owner.host),)

    async def _list(self, revision: int, asked: set[bytes]) -> tuple[KeySum, KeySum, KeySum]:
        """Return the sums of a list, and strike out of `asked` what it has."""
        hosts, endpoints, migrations = KeySum(), KeySum(), KeySum()
        async for page in self._store.list(self._hosts, revision=revision):
            hosts = hosts.with_keys(_struck([one for one in page.entries if self._is_ours(one)], asked))
        async for page in self._store.list(self._endpoints, revision=revision, page=_PAGE, keys_only=True):
            endpoints = endpoints.with_keys(_struck(page.entries, asked))
        async for page in self._store.list(self._migrations, revision=revision, page=_PAGE, keys_only=True):
            migrations = migrations.with_keys(_struck(page.entries, asked))
        return hosts, endpoints, migrations

    def _is_ours(self, entry: Entry) -> bool:
        """Hosts of all regions have the same prefix; one that cannot be read could be ours."""
        host = HOST.decode(entry.key, entry.value)
        return isinstance(host, Bad) or region_of(host.metadata.labels, self._region)


def equals(census: Census, sums: tuple[KeySum, KeySum, KeySum]) -> bool:  # protection: N28
    """Return whether a list has exactly the objects of the inventory."""
    return census.sums == sums


def _struck(entries: Iterable[Entry], asked: set[bytes]) -> list[bytes]:
    """Return the keys of these entries, and strike them out of `asked`."""
    keys = [entry.key for entry in entries]
    asked.difference_update(keys)
    return keys
