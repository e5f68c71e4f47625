"""User and password of etcd's own authentication: one token, fetched once, shared by all calls, renewed when refused.

Authenticating costs a member a quarter of a second of CPU (it hashes slowly on purpose), so a token is kept until a
member says that it does not know it, and only one call at a time asks for a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Authenticate = Callable[[], Awaitable[str]]


class Tokens:
    """The current token. Without a user it is empty, and nothing is ever asked."""

    def __init__(self, authenticate: Authenticate | None) -> None:
        self._authenticate = authenticate
        self._token = ""
        self._lock = asyncio.Lock()

    async def current(self) -> str:
        if self._authenticate is None or self._token:
            return self._token
        async with self._lock:
            if not self._token:
                self._token = await self._authenticate()
            return self._token

    def renewable(self, refused: str) -> bool:
        """Drops a token that a member refused. False when a new one would not help."""
        if self._authenticate is None:
            return False
        if self._token == refused:
            self._token = ""
        return True
