"""The network between one client and the members, with its faults; every fault is one of bytes on a connection.

The words are those of `FakeLink`, so that one scenario runs on both.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.testing.store.link import Fate, always_answered, later

ABANDONED_AFTER = 1.0

if TYPE_CHECKING:
    from holdfast.testing.store.gateway.tcp import SimTransport


class SimLink:
    """Carries the connections of one client."""

    def __init__(self, name: str, latency: Callable[[], float], rng: random.Random) -> None:
        self.name = name
        """Name of the client, for the history of the store."""
        self.latency = latency
        """One-way latency in seconds, called for every segment."""
        self.fate_of: Callable[[str], Fate] = always_answered
        """Fate of a call by the name of its method, unless `next_calls` decided it."""
        self.up = True
        """False while nothing passes in either direction."""
        self.refuses = False
        """True while nothing listens at the other end."""
        self.drift = 0.0
        """Probability that a watch falls behind the others of its stream at a commit."""
        self.transports: list[SimTransport] = []
        self._rng = rng
        self._queued: list[tuple[Fate, str | None]] = []
        self._held: bytes | None = None
        self._muted: list[SimTransport] = []
        self._muted_prefix = b""
        self.healed: list[Callable[[], None]] = []
        """Called when the streams of this link may catch up."""

    def delay(self) -> float:
        return self.latency()

    def cut_at(self, length: int) -> int:
        """Draw where a reply of that length ends too early."""
        return self._rng.randrange(length)

    def fate(self, method: str) -> Fate:
        for i, (fate, of) in enumerate(self._queued):
            if of is None or of == method:
                del self._queued[i]
                return fate
        return self.fate_of(method)

    def next_calls(self, fate: Fate, *, count: int = 1, of: str | None = None) -> None:
        """Give this fate to the next `count` calls (of that method)."""
        self._queued.extend([(fate, of)] * count)

    def cut(self) -> None:
        """Partition the client: packets are dropped, TCP sends them again until it gives up."""
        self.up = False
        self._path_changed()

    def heal(self) -> None:
        """Let everything pass again; streams catch up."""
        self.up, self._held = True, None
        self._muted.clear()
        self._path_changed()
        for wake in self.healed:
            wake()

    def mute_watches(self, prefix: bytes = b"") -> None:
        """Let no watch of the open streams below `prefix` send any more, while calls and new streams are answered."""
        self._muted = list(self.transports)
        self._muted_prefix = prefix

    def drop_flows(self) -> None:
        """Half-open every connection at TCP: it ends as TCP ends it."""
        for transport in list(self.transports):
            transport.drop()

    def hold_back(self, prefix: bytes) -> None:
        """Let watches of keys that begin with `prefix` fall behind the others of their stream."""
        self._held = prefix

    def holds_back(self, transport: SimTransport, first: bytes) -> bool:
        """Return True if a watch that begins at `first` delivers nothing now."""
        muted = transport in self._muted and first.startswith(self._muted_prefix)
        return muted or (self._held is not None and first.startswith(self._held))

    def disconnect(self) -> None:
        """Reset every connection: calls in flight fail at once, and it is uncertain whether they were applied."""
        for transport in list(self.transports):
            transport.reset()

    def lose_continuity(self) -> None:
        """Reset every connection; continuity itself is lost only by a compaction, a wipe or a restore."""
        self.disconnect()

    def sever(self) -> None:
        """Cut the client off for good."""
        self.refuses = True
        self.disconnect()

    def abandon(self) -> None:
        """Close the connections of a process that has ended, once what it has sent has arrived."""
        for transport in list(self.transports):
            later(ABANDONED_AFTER, transport.server.closed)

    def opened(self, transport: SimTransport) -> None:
        self.transports.append(transport)
        if not self.up:
            transport.path_changed()

    def closed(self, transport: SimTransport) -> None:
        for group in (self.transports, self._muted):
            if transport in group:
                group.remove(transport)

    def _path_changed(self) -> None:
        for transport in list(self.transports):
            transport.path_changed()
