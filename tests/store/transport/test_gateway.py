"""Tokens: fetched once, shared, renewed when refused."""

from __future__ import annotations

import asyncio

from holdfast.store.transport.gateway import Tokens


class Server:
    """Counts how often somebody authenticates; each time it gives another token."""

    def __init__(self) -> None:
        self.calls = 0

    async def authenticate(self) -> str:
        self.calls += 1
        number = self.calls
        await asyncio.sleep(0)
        return f"token-{number}"


def test_many_calls_share_one_authentication() -> None:
    async def main() -> None:
        server = Server()
        tokens = Tokens(server.authenticate)
        assert set(await asyncio.gather(*(tokens.current() for _ in range(20)))) == {"token-1"}
        assert server.calls == 1

    asyncio.run(main())


def test_a_refused_token_is_replaced_once_however_many_calls_it_was_refused_to() -> None:
    async def main() -> None:
        server = Server()
        tokens = Tokens(server.authenticate)
        old = await tokens.current()
        assert tokens.renewable(old)
        assert await tokens.current() == "token-2"
        assert tokens.renewable(old)
        assert await tokens.current() == "token-2"

    asyncio.run(main())


def test_without_a_user_there_is_no_token_and_nothing_to_renew() -> None:
    async def main() -> None:
        tokens = Tokens(None)
        assert await tokens.current() == ""
        assert not tokens.renewable("")

    asyncio.run(main())
