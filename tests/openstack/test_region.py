"""The leader of a region of OpenStack, and the objects that belong to it."""

from __future__ import annotations

import pytest

from holdfast.config.root import Config
from holdfast.config.sections.inventory import InventorySettings
from holdfast.config.sections.store import StoreSettings
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region, configured_region
from holdfast.model.calico.cluster import CLUSTER, FELIX_CONFIGURATION
from holdfast.model.calico.policy import POLICY
from holdfast.model.control.leader import LEADER
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry

NEUTRON = InventorySettings(database="neutron", neutron_config=("/etc/neutron/neutron.conf",))


def test_the_leader_is_elected_at_the_key_of_networking_calico() -> None:
    region = configured_region(Config(inventory=NEUTRON))

    assert LEADER.key(region, "leader") == b"/calico/openstack/v2/no-region/neutron_election"
    assert LEADER.key(Region(), "leader") == b"/holdfast/v1/no-region/leader"


def test_daemons_beside_neutron_find_that_leader() -> None:
    region = configured_region(Config(store=StoreSettings(region="ams", openstack=True)))

    assert LEADER.key(region, "leader") == b"/calico/openstack/v2/region-ams/neutron_election"


def test_a_leader_of_networking_calico_can_be_read() -> None:
    leader = LEADER.decode(b"", b"controller-1:4711")

    assert not isinstance(leader, Bad)
    assert (leader.host, leader.pid) == ("controller-1", 4711)


@pytest.mark.parametrize(
    ("kind", "name", "ours"),
    [
        (POLICY, "ossg.default.8e80eb60", True),
        (POLICY, "made-by-an-operator", False),
        (FELIX_CONFIGURATION, "default", True),
        (FELIX_CONFIGURATION, "node.compute-1", False),
        (CLUSTER, "default", True),
    ],
)
def test_objects_of_operators_are_not_ours(kind: Kind[object, str], name: str, ours: bool) -> None:
    region = Region()

    assert RegionKeys(region, [kind]).is_ours(Entry(kind.key(region, name), b"{}")) is ours
