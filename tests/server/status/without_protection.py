"""Replacements for protections of the status workers that a fault test removes."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from holdfast.model.base import codec
from holdfast.model.base.kind import Kind
from holdfast.model.base.time import Instant
from holdfast.server.status.inventory_rows import EndpointRows
from holdfast.server.status.rules.bindings import Bound
from holdfast.server.status.rules.endpoints import EndpointRules


def read_aware_only(text: str) -> datetime:
    """Understands times with a zone only."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no zone")
    return moment


def decode_or_die(self: Kind[Any, Any], key: bytes, value: bytes) -> Any:
    """Takes every value for a good one, as a watcher does that was written on a good day."""
    return codec.decode(self._decoder, value)


def bound_anywhere(self: EndpointRules, key: bytes) -> Bound:
    """Whoever speaks of an endpoint is believed to have it."""
    return Bound(self.bindings.agent(key), b"")


async def deaf(_self: EndpointRows, _now: Instant) -> Collection[bytes]:
    """Ignores changes of the inventory."""
    return ()
