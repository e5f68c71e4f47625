"""Ranges of keys that belong to one host, for an agent that watches nothing else. Pure.

The names of endpoints and migrations begin with their host, with `-` doubled, and a single `-` ends it. So the keys of
host `rack` are those from `rack-.` up to `rack.`: `.` comes after `-`, so neither `rack--1-…`, which is of host
`rack-1`, nor `rack.1-…` or `rack1-…` is among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.model.base.kind import Kind
from holdfast.model.base.name import NameRefused, join
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.store.api import KeyRange


class HostNameRefused(Exception):
    """A host has a name that no endpoint can begin with; the message is one sentence."""


def keys_of(host: str, region: Region) -> Sequence[KeyRange]:
    """Return the keys of the migrations to a host, of the host itself, and of its endpoints. Raises
    `HostNameRefused`."""
    try:
        node = HOST.key(region, host)
        return named_after(host, MIGRATION, region), KeyRange(node, node + b"\0"), named_after(host, ENDPOINT, region)
    except NameRefused as refused:
        raise HostNameRefused(
            f"this host can have no endpoints: {refused}; give it another one, in agent.host and in the inventory"
        ) from None


def named_after(host: str, kind: Kind[Any, Any], region: Region) -> KeyRange:
    """Return the keys of the objects of a kind whose names begin with a host."""
    start = kind.prefix(region) + join([host]).encode()
    return KeyRange(start + b"-.", start + b".")
