"""The clock of a store, from the Date headers of its answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.base.time import Instant
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.transport.gateway import Connection


def test_a_member_of_etcd_says_what_its_clock_shows(etcd: EmbeddedEtcd) -> None:
    async def look() -> tuple[datetime, Instant] | None:
        store = EtcdStore(Connection((etcd.endpoint,)))
        assert store.clock() is None
        try:
            await store.get(b"/anything")
            return store.clock()
        finally:
            await store.close()

    found = asyncio.run(look())
    assert found is not None
    assert abs(datetime.now(UTC) - found[0]) < timedelta(minutes=5)


@pytest.mark.parametrize("date", [b"yesterday", b"\xff", b"Sun, 15 Nov 2026 07:07:06 -0000"])
def test_a_date_that_makes_no_sense_is_none(date: bytes) -> None:
    async def look() -> tuple[datetime, Instant] | None:
        store = EtcdStore(Connection(("http://127.0.0.1:1",)))
        store._gateway.dated = date, Instant(1)
        return store.clock()

    assert asyncio.run(look()) is None
