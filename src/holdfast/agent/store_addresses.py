"""Addresses at which the store's endpoints are reached now, for the gate that keeps them reachable.

Names are resolved again and again; while that fails, the last known addresses count.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from holdfast.model.base.time import Duration

INTERVAL = Duration(seconds=60)
RETRY = Duration(seconds=1)
"""While a name was never resolved: the store may be reached the moment it can be."""


class StoreAddresses:
    def __init__(self, endpoints: Collection[str]) -> None:
        self._names = sorted({name for url in endpoints if (name := urlsplit(url).hostname)})
        self._known: Mapping[str, frozenset[str]] = {}

    def addresses(self) -> frozenset[str]:
        return frozenset().union(*self._known.values())

    async def run(self) -> None:
        while True:
            await self.resolve()
            await asyncio.sleep((INTERVAL if all(self._known.values()) else RETRY).total_seconds())

    async def resolve(self) -> None:
        found = {name: await _addresses(name) for name in self._names}
        self._known = {name: new or self._known.get(name, frozenset()) for name, new in found.items()}


async def _addresses(name: str) -> frozenset[str]:
    """Resolve one name; empty while that fails."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    # A link-local address carries the name of its link; no route of ours covers those.
    return frozenset(str(sockaddr[0]) for *_, sockaddr in found if "%" not in str(sockaddr[0]))
