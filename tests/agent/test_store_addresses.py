"""Addresses of the store: known as soon as names resolve, and kept when a lookup fails."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.agent import store_addresses
from holdfast.agent.store_addresses import StoreAddresses
from holdfast.testing import World, simulate


class Names:
    """A name service that a test fills and breaks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **known: str) -> None:
        self.known = known
        monkeypatch.setattr(store_addresses, "_addresses", self.addresses)

    async def addresses(self, name: str) -> frozenset[str]:
        return frozenset({self.known[name]} if name in self.known else ())


def test_addresses_need_no_lookup() -> None:
    async def looked() -> frozenset[str]:
        found = StoreAddresses(["http://127.0.0.1:2379", "https://[::1]:2379"])
        await found.resolve()
        return found.addresses()

    assert asyncio.run(looked()) == {"127.0.0.1", "::1"}


def test_a_lookup_that_fails_changes_nothing_of_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, etcd="192.0.2.7")

    async def looked() -> frozenset[str]:
        found = StoreAddresses(["http://etcd:2379"])
        await found.resolve()
        names.known.clear()
        await found.resolve()
        return found.addresses()

    assert asyncio.run(looked()) == {"192.0.2.7"}


def test_a_name_that_was_never_found_is_looked_up_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)

    async def scenario(_world: World) -> None:
        found = StoreAddresses(["http://etcd:2379"])
        looking = asyncio.create_task(found.run())
        await asyncio.sleep(10)
        assert found.addresses() == frozenset()
        names.known["etcd"] = "192.0.2.7"
        await asyncio.sleep(1.5)
        assert found.addresses() == {"192.0.2.7"}
        looking.cancel()

    simulate(1, scenario)
