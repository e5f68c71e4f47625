"""Wake-ups by PostgreSQL's `NOTIFY`. Loaded only where PostgreSQL is used."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import psycopg
import structlog
from sqlalchemy import Engine

from holdfast.inventory.sql.wake import CHANNEL
from holdfast.model.base.time import Duration

log = structlog.get_logger(__name__)


class PostgresWaker:
    def __init__(self, engine: Engine) -> None:
        url = engine.url.set(drivername="postgresql")
        self._dsn = url.render_as_string(hide_password=False)
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def wait(self, most: Duration) -> None:
        try:
            async with asyncio.timeout(most.total_seconds()):
                connection = self._connection or await self._listen()
                async for _ in connection.notifies(stop_after=1):
                    return
        except TimeoutError:
            return
        except (psycopg.Error, OSError) as error:
            log.debug("PostgreSQL notifications failed; polling instead", error=str(error))
            await self.close()
            await asyncio.sleep(most.total_seconds())

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await connection.close()

    async def _listen(self) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, connect_timeout=5)
        self._connection = connection
        await connection.execute(f"LISTEN {CHANNEL}")
        return connection
