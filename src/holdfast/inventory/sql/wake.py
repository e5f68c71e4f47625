"""Wake-ups on changes of the inventory. They only save time: polling finds what a wake-up misses.

PostgreSQL sends `NOTIFY` in the transaction of the change; on SQLite `PRAGMA data_version` shows that another
connection has committed. The next poll finds changes that were missed because of a lost connection or a late start.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any, Protocol

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from holdfast.model.base.time import Duration

log = structlog.get_logger(__name__)

CHANNEL = "holdfast_outbox"
_POLL_S = 0.05


class Waker(Protocol):
    async def wait(self, most: Duration) -> None:
        """Return when the inventory may have changed, or after that long."""
        ...

    async def close(self) -> None: ...


class SqliteWaker:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Any = None
        self._seen = 0

    async def wait(self, most: Duration) -> None:
        try:
            async with asyncio.timeout(most.total_seconds()):
                await self._changed()
            self._seen = self._version()
        except TimeoutError:
            return
        except (sqlite3.Error, DBAPIError) as error:
            log.debug("SQLite wake-ups failed; polling instead", error=str(error))
            await asyncio.sleep(most.total_seconds())

    async def _changed(self) -> None:
        while self._version() == self._seen:  # noqa: ASYNC110 -- SQLite has no notifications
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _version(self) -> int:
        if self._connection is None:  # opened late: a missing file must not keep the worker from starting
            self._connection = self._engine.raw_connection()
        cursor = self._connection.cursor()
        try:
            return int(cursor.execute("PRAGMA data_version").fetchone()[0])
        finally:
            cursor.close()


def waker(engine: Engine) -> Waker:
    if engine.dialect.name != "postgresql":
        return SqliteWaker(engine)
    from holdfast.inventory.sql.postgres_wake import PostgresWaker  # loads its driver, a fifth of a second of CPU

    return PostgresWaker(engine)
