"""Every key that a leader creates has its mirror row before, so that no delete of its resource goes without a witness.

The driver's hooks write no mirror rows: a resource whose key no leader has created yet needs no witness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from holdfast.inventory.api import Fence
from holdfast.model.base.region import Region
from holdfast.openstack import tables as t
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.outbox import Changed
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.server.syncer.term import SyncerTerm
from holdfast.testing.fakes.neutron import NeutronDatabase
from tests.server.harness import SyncerHarness
from tests.server.syncer.restores.harness import Backup, turned

REGION = Region(openstack=True)


class Neutron(SyncerHarness):
    """A Neutron with a few ports, and its leader."""

    def __init__(self, database: NeutronDatabase, folder: Path) -> None:
        super().__init__(database.engine, folder, REGION)
        self.database = database
        self.neutron = NeutronInventory(database.engine, TranslationSettings(region=REGION))
        self.inventory = self.neutron  # type: ignore[assignment]
        self._network = database.network()
        self._subnet, self._group = database.subnet(self._network), database.group()
        for number in range(100, 105):  # so many that the brake lets one go
            self.port(f"10.28.0.{number}")

    def port(self, address: str) -> str:
        """Create a port, as Neutron's API does: its change is in the outbox."""
        made = self.database.port(self._network, self._subnet, address, group=self._group)
        later = self.neutron.revision() + 1  # as on MariaDB, which does not give an id twice
        self.database.insert(t.OUTBOX, id=later, kind=Changed.PORT.value, resource=made)
        return made

    def delete_behind_neutrons_back(self, port: str) -> None:
        """Delete a port by raw SQL: no change is in the outbox."""
        self.database.remove(t.PORTS, port)

    def key(self, port: str) -> bytes | None:
        """The key of the port's endpoint in the store."""
        return next((key for key in self.stored() if port.replace("-", "--").encode() in key), None)

    async def resynced(self, term: SyncerTerm) -> None:
        for _ in range(2):
            await self.compared(term)


@pytest.fixture
def neutron(database: NeutronDatabase, tmp_path: Path) -> Neutron:
    return Neutron(database, tmp_path)


def test_a_port_that_is_deleted_before_a_leader_looked_leaves_nothing(neutron: Neutron) -> None:
    async def scenario() -> None:
        term = await neutron.settled()
        port = neutron.port("10.28.0.7")
        neutron.delete_behind_neutrons_back(port)
        await term.reconciler.turn()
        await neutron.resynced(term)
        assert neutron.key(port) is None

    asyncio.run(scenario())


def test_a_port_that_is_deleted_while_the_leader_creates_its_key_is_witnessed(neutron: Neutron) -> None:
    """The leader has read the port and decided; the port goes, and then the leader writes."""
    expect, created, port = neutron.neutron.expect, list[bytes](), ""

    def delete_first(fence: Fence, keys: Collection[bytes]) -> None:
        neutron.delete_behind_neutrons_back(port)
        created.extend(keys)
        expect(fence, keys)

    async def scenario() -> None:
        nonlocal port
        term = await neutron.settled()
        port = neutron.port("10.28.0.7")
        neutron.neutron.expect = delete_first  # type: ignore[method-assign]
        await term.reconciler.turn()
        neutron.neutron.expect = expect  # type: ignore[method-assign]
        assert any(port.replace("-", "--").encode() in key for key in created)

        await neutron.resynced(term)
        assert neutron.key(port) is None

    asyncio.run(scenario())


def test_C40_what_is_created_while_a_restored_database_is_judged_has_a_witness_too(
    neutron: Neutron, tmp_path: Path
) -> None:
    async def scenario() -> None:
        neutron.port("10.28.0.7")
        term = await neutron.settled()
        backup = Backup(neutron, tmp_path)
        neutron.port("10.28.0.8")
        await term.reconciler.turn()
        backup.restore()
        term = await turned(neutron)
        assert term.identity_gate.verdict.closed is FleetIdentityReason.INVENTORY_RESTORED

        later = neutron.port("10.28.0.9")
        await term.reconciler.turn()
        key = neutron.key(later)
        assert key is not None, "what is edited after the verdict flows"
        neutron.delete_behind_neutrons_back(later)
        assert key in neutron.neutron.witness([key])

    asyncio.run(scenario())
