"""The way to the store: the addresses at which its endpoints are reached now, for the gate that keeps them reachable.

A name is looked up again and again; while that fails, the addresses that it had last still count.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from holdfast.model.base.time import Duration

LOOK = Duration(seconds=60)
LOOK_AGAIN = Duration(seconds=1)
"""While a name was never found: the store may be reached the moment it can be looked up."""


class StoreAddresses:
    def __init__(self, endpoints: Collection[str]) -> None:
        self._names = sorted({name for url in endpoints if (name := urlsplit(url).hostname)})
        self._known: Mapping[str, frozenset[str]] = {}

    def addresses(self) -> frozenset[str]:
        return frozenset().union(*self._known.values())

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep((LOOK if all(self._known.values()) else LOOK_AGAIN).total_seconds())

    async def look(self) -> None:
        found = {name: await _addresses(name) for name in self._names}
        self._known = {name: new or self._known.get(name, frozenset()) for name, new in found.items()}


async def _addresses(name: str) -> frozenset[str]:
    """Empty while the name cannot be looked up."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    # A link-local address carries the name of its link; no route of ours is about those.
    return frozenset(str(sockaddr[0]) for *_, sockaddr in found if "%" not in str(sockaddr[0]))
