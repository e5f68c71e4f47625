"""A transaction that stays open while a snapshot is read from it, page by page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine

from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.sql.engine import translated_errors


class OpenTransaction:
    """Holds one connection. An error ends it; so does `close`, which may be called at any time."""

    def __init__(self) -> None:
        self._resources = contextlib.ExitStack()

    def begin(self, engine: Engine, **isolation: Any) -> Connection:
        """Open the transaction; both databases take the snapshot at the first query."""
        connection = engine.connect().execution_options(reads=True, **isolation)
        self._resources.enter_context(connection)
        self._resources.callback(connection.begin().close)
        return connection

    def close(self) -> None:
        with contextlib.suppress(DatabaseAway), translated_errors():
            self._resources.close()

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        try:
            with translated_errors():
                yield
        except BaseException:
            self.close()
            raise
