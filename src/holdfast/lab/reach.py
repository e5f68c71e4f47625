"""How a scene reaches into a lab from outside: its etcd and its database, each for the length of a block."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

from sqlalchemy import Engine

from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.lab import fleet
from holdfast.lab.inventory import database
from holdfast.lab.stage import Broken, Lab
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection


@contextlib.asynccontextmanager
async def store_of(lab: Lab) -> AsyncIterator[EtcdStore]:
    url = fleet.endpoint(lab.folder / "state")
    if url is None:
        raise Broken("the lab's etcd has not been started yet")
    store = EtcdStore(Connection((url,)))
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def database_of(lab: Lab) -> Iterator[Engine]:
    engine = open_engine(database_url(database(lab.folder / "state")))
    try:
        yield engine
    finally:
        engine.dispose()
