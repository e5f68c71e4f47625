"""What a server says of the store and of leadership when somebody asks how things are."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class StoreSeen(msgspec.Struct, frozen=True):
    version: str
    members: int
    answering: int
    revision: int
    round_trip_ms: float
    compacted_ago_s: float | None = None
    """When this server last compacted its history; None: not since it was started."""


class ElectorView(msgspec.Struct, frozen=True):
    """One elector's view. `store` is None while the store is away; `leader` is empty while nobody leads."""

    name: str
    phase: str
    leader: str
    term: int
    since_s: float
    lease_s: float
    ttl_s: float
    followers: Mapping[str, bool]
    """The servers that do not lead, this one too, and whether each could and would."""
    fleet: str = ""
    """The fleet that the store belongs to."""
    refused: str = ""
    """Why this server may not take part in elections, in one sentence; empty while it may."""
    paused: str = ""
    """Who asked it not to, until when and why; empty while nobody does."""
    store: StoreSeen | None = None
    store_error: str = ""
    refuses_store: str = ""
    """Why this server does not take the store for the one it knows (foreign, restored); empty when it does."""
    opens: str = ""
    """The command that changes that, where there is one."""
