"""Ranges of keys that belong to one host, for an agent that watches nothing else. Pure.

The names of endpoints and migrations begin with their host, with `-` doubled, and a single `-` ends it. So the keys of
host `rack` are those from `rack-.` up to `rack.`: `.` comes after `-`, so neither `rack--1-…`, which is of host
`rack-1`, nor `rack.1-…` or `rack1-…` is among them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.model.base.kind import Kind
from holdfast.model.base.name import NameRefused, join
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.store.api import KeyRange


class HostNameRefused(Exception):
    """A host has a name that no endpoint can begin with; the message is one sentence."""


class HostRanges(NamedTuple):
    """Keys that belong to one host, in their order."""

    migrations: KeyRange
    """Of migrations to it."""
    host: KeyRange
    endpoints: KeyRange


def keys_of(host: str, region: Region) -> HostRanges:
    """Return the keys of the migrations to a host, of the host itself, and of its endpoints. Raises
    `HostNameRefused`."""
    try:
        node = KeyRange(HOST.key(region, host), HOST.key(region, host) + b"\0")
        return HostRanges(named_after(host, MIGRATION, region), node, named_after(host, ENDPOINT, region))
    except NameRefused as refused:
        raise HostNameRefused(
            f"this host can have no endpoints: {refused}; give it another one, in agent.host and in the inventory"
        ) from None


def named_after(host: str, kind: Kind[Any, Any], region: Region) -> KeyRange:
    """Return the keys of the objects of a kind whose names begin with a host."""
    start = kind.prefix(region) + join([host]).encode()
    return KeyRange(start + b"-.", start + b".")
