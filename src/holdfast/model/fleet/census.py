"""Census: how many hosts, endpoints and migrations the inventory has, and the sums of their keys' hashes (N28).

The leader computes it from the inventory, never from the store. A list of the store with the same numbers has exactly
these keys: an object that it lacks is gone from the inventory, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from holdfast.model.base.keys import named, own, single
from holdfast.model.base.kind import Column, Kind

_HASH_BYTES = 8


class KeySum(msgspec.Struct, frozen=True, gc=False):
    """Number of keys of one kind, and the sum of their hashes in 64 bits."""

    count: int = 0
    sum: int = 0

    def with_keys(self, keys: Iterable[bytes]) -> KeySum:
        hashes = [int.from_bytes(blake2b(key, digest_size=_HASH_BYTES).digest(), "big") for key in keys]
        return KeySum(self.count + len(hashes), (self.sum + sum(hashes)) % 2 ** (8 * _HASH_BYTES))


class Census(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Census of a region. The sums follow from names and counts alone."""

    revision: int
    """Revision of the store at which it had everything that the inventory had."""
    hosts: KeySum = KeySum()
    endpoints: KeySum = KeySum()
    migrations: KeySum = KeySum()

    @property
    def sums(self) -> tuple[KeySum, KeySum, KeySum]:
        return self.hosts, self.endpoints, self.migrations


_COLUMNS: tuple[Column[Census, str], ...] = (
    Column("HOSTS", lambda _, census: f"{census.hosts.count:,}"),
    Column("ENDPOINTS", lambda _, census: f"{census.endpoints.count:,}"),
    Column("MIGRATIONS", lambda _, census: f"{census.migrations.count:,}"),
    Column("REVISION", lambda _, census: str(census.revision)),
)

CENSUS: Kind[Census, str] = Kind(
    name="census",
    plural="censuses",
    struct=Census,
    place=single(own("fleet/census"), "census"),
    columns=_COLUMNS,
)

HOST_CENSUS: Kind[Census, str] = Kind(
    name="host-census",
    plural="host-censuses",
    struct=Census,
    place=named(own("census/")),
    columns=(Column("HOST", lambda host, _: host), *_COLUMNS),
)
"""Census of what belongs to one host, for an agent that watches nothing else and asks for it."""
