"""Mirror rows: the database witnesses every delete, also of what was there before; an adoption voids it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.inventory.api import Fence
from holdfast.inventory.sql.fence import raise_fence
from holdfast.model.base.region import Region
from holdfast.openstack import mirror
from holdfast.openstack import tables as t
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.outbox import Changed
from holdfast.openstack.translate.keys import NeutronResource, ResourceType
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.testing.fakes.neutron import NeutronDatabase

REGION = Region(openstack=True)
FENCE = Fence(REGION.segment, 1, 70)


class Cloud:
    """A port, a group and a subnet that were there before Holdfast: the outbox has never had a row."""

    def __init__(self, database: NeutronDatabase) -> None:
        self.database = database
        self.inventory = NeutronInventory(database.engine, TranslationSettings(region=REGION))
        raise_fence(database.engine, FENCE, t.CONTROL.fence)
        database.insert(t.CONTROL.identity, only=1, fleet="f", witness_after=0)
        network = database.network()
        self.subnet, self.group = database.subnet(network), database.group()
        self.port = database.port(network, self.subnet, "10.28.0.7", group=self.group)
        self.keys = {
            table: self._key(resource)
            for table, resource in ((t.PORTS, self.port), (t.GROUPS, self.group), (t.SUBNETS, self.subnet))
        }

    def _key(self, resource: str) -> bytes:
        snapshot = self.inventory.snapshot()
        rows = snapshot.read(None, 100)
        snapshot.close()
        return next(row.key for row in rows if resource.encode() in row.key.replace(b"--", b"-"))

    def record(self) -> None:
        """Record all keys, as the first resync does."""
        for _ in self.inventory.prune_history(FENCE, datetime.now(UTC) - timedelta(days=90)):
            pass

    def remove(self, table: object) -> None:
        resource = {t.PORTS: self.port, t.GROUPS: self.group, t.SUBNETS: self.subnet}[table]  # type: ignore[index]
        self.database.remove(table, resource)  # type: ignore[arg-type]

    def mirrored(self) -> int:
        with self.database.engine.connect() as connection:
            return len(connection.execute(t.MIRROR.select()).all())


@pytest.fixture
def cloud(database: NeutronDatabase) -> Cloud:
    return Cloud(database)


@pytest.mark.parametrize("table", [t.PORTS, t.GROUPS, t.SUBNETS], ids=lambda table: str(table.name))
def test_the_database_witnesses_the_delete_of_what_was_there_before_holdfast(cloud: Cloud, table: object) -> None:
    cloud.record()
    key = cloud.keys[table]  # type: ignore[index]
    assert cloud.inventory.witness([key]) == {}

    cloud.remove(table)

    assert set(cloud.inventory.witness([key])) == {key}


def test_without_a_row_nothing_witnesses_a_delete(cloud: Cloud) -> None:
    cloud.remove(t.PORTS)

    assert cloud.inventory.witness(cloud.keys.values()) == {}


_TYPES: dict[object, ResourceType] = {t.PORTS: "port", t.GROUPS: "security-group", t.SUBNETS: "subnet"}


@pytest.mark.parametrize("table", _TYPES, ids=lambda table: str(table.name))
def test_a_delete_through_neutron_witnesses_keys_that_no_resync_has_recorded(cloud: Cloud, table: object) -> None:
    resource = {t.PORTS: cloud.port, t.GROUPS: cloud.group, t.SUBNETS: cloud.subnet}[table]  # type: ignore[index]
    with cloud.database.engine.begin() as connection:
        mirror.expect_delete(connection, NeutronResource(_TYPES[table], resource), 7, REGION)
    key = cloud.keys[table]  # type: ignore[index]
    assert cloud.inventory.witness([key]) == {}  # the resource is there: the transaction may have been rolled back

    cloud.remove(table)

    assert cloud.inventory.witness(cloud.keys.values())[key].revision == 7


def test_an_adoption_voids_deletes_of_before_and_none_of_after(cloud: Cloud) -> None:
    cloud.record()
    cloud.remove(t.PORTS)

    cloud.inventory.void_witnesses(FENCE)
    assert cloud.inventory.witness(cloud.keys.values()) == {}

    cloud.remove(t.GROUPS)
    assert set(cloud.inventory.witness(cloud.keys.values())) == {cloud.keys[t.GROUPS]}


def test_a_delete_after_the_verdict_stays_a_witness_when_those_before_it_are_voided(cloud: Cloud) -> None:
    cloud.record()
    cloud.remove(t.GROUPS)
    verdict = cloud.inventory.revision()
    cloud.database.insert(t.OUTBOX, kind=Changed.PORT.value, resource=cloud.port)
    cloud.remove(t.PORTS)

    cloud.inventory.void_witnesses(FENCE, verdict)

    assert set(cloud.inventory.witness(cloud.keys.values())) == {cloud.keys[t.PORTS]}


def test_C40_only_objects_that_were_edited_after_a_verdict_are_newer_than_it(cloud: Cloud) -> None:
    """Neutron's own revisions count per object: a port that was changed often is not newer than the verdict."""
    key = cloud.keys[t.PORTS]
    cloud.database.change(t.STANDARD, 3, revision_number=1_000)
    cloud.database.insert(t.OUTBOX, kind=Changed.GROUP.value, resource=cloud.group)
    verdict = cloud.inventory.revision()

    def revision() -> int:
        (row,) = cloud.inventory.read_keys([key])
        return row.revision

    assert revision() <= verdict
    cloud.database.insert(t.OUTBOX, kind=Changed.PORT.value, resource=cloud.port)
    assert revision() > verdict


def test_C40_a_port_that_was_unbound_before_a_verdict_gives_up_its_key_only_when_it_is_edited(cloud: Cloud) -> None:
    key, verdict = cloud.keys[t.PORTS], cloud.inventory.revision()
    cloud.database.change(t.PORTS, cloud.port, device_owner="")
    cloud.database.insert(t.OUTBOX, kind=Changed.GROUP.value, resource=cloud.group)

    assert cloud.inventory.witness([key])[key].revision <= verdict
    cloud.database.insert(t.OUTBOX, kind=Changed.PORT.value, resource=cloud.port)
    assert cloud.inventory.witness([key])[key].revision > verdict


def test_assigning_the_database_to_another_fleet_voids_its_witnesses(cloud: Cloud) -> None:
    cloud.record()
    cloud.remove(t.PORTS)

    cloud.inventory.assign("f")
    assert set(cloud.inventory.witness(cloud.keys.values())) == {cloud.keys[t.PORTS]}

    cloud.inventory.assign("another")
    assert cloud.inventory.witness(cloud.keys.values()) == {}


def test_rows_are_kept_for_90_days_after_their_resource_is_gone_and_longer_while_held(cloud: Cloud) -> None:
    cloud.record()
    cloud.remove(t.PORTS)
    cloud.record()
    assert cloud.mirrored() == 3

    later = datetime.now(UTC) + timedelta(seconds=1)
    key = cloud.keys[t.PORTS]
    for held, left in (([key], 3), ([], 2)):
        for _ in cloud.inventory.prune_history(FENCE, later, held):
            pass
        assert cloud.mirrored() == left
