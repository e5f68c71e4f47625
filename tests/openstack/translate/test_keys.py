"""Keys of Neutron's resources: injective, sorted as etcd sorts them, and readable back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.openstack.rows import BindingRow, PortRow, SecurityGroupRow, SubnetRow
from holdfast.openstack.translate.fleet import fleet_objects
from holdfast.openstack.translate.keys import KINDS, NeutronResource, keys_of, kind_at, resource_at, wanted_now
from tests.openstack.translate.build import DEVICE, PORT, SUBNET4, WEB, bound, port

HERE = Region()
AMS = Region("ams")
HOME, AWAY = (
    f"/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/compute--{n}-openstack-"
    f"{DEVICE.replace('-', '--')}-{PORT.replace('-', '--')}".encode()
    for n in (1, 2)
)
MOVE = AWAY.replace(b"/workloadendpoints/", b"/livemigrations/")
MIGRATING = port(bindings=(bound(profile='{"migrating_to": "compute-2"}'),))
words = st.text(st.sampled_from("ab-1."), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(words, words, words), min_size=2, max_size=2, unique=True))
def test_different_ports_have_different_keys(parts: list[tuple[str, str, str]]) -> None:
    one, two = (keys_of(port(bindings=(bound(host),), device_id=device, id=each), HERE) for host, device, each in parts)
    assert one != two or one == ()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(words, words), min_size=1, max_size=8))
def test_a_page_boundary_cuts_keys_as_etcd_does(parts: list[tuple[str, str]]) -> None:
    """Keys are bytes: what is above a key here is above it there, whatever the hosts are called."""
    rows = [port(bindings=(bound(host),), id=each) for host, each in parts]
    keys = sorted(each.key for row in rows for each in keys_of(row, HERE))
    assert keys == sorted(keys, key=list)
    assert all(ENDPOINT.prefix(HERE) <= key < ENDPOINT.prefix(HERE)[:-1] + b"0" for key in keys)


@pytest.mark.parametrize("region", [HERE, AMS], ids=str)
def test_no_prefix_of_a_kind_is_inside_another_s(region: Region) -> None:
    prefixes = [kind.prefix(region) for kind in KINDS]
    assert not [(a, b) for a in prefixes for b in prefixes if a is not b and a.startswith(b)]


def test_a_migrating_port_has_three_keys() -> None:
    assert [each.key for each in keys_of(MIGRATING, HERE)] == [HOME, MOVE, AWAY]
    assert [each.kind for each in keys_of(MIGRATING, HERE)] == [ENDPOINT, MIGRATION, ENDPOINT]


@pytest.mark.parametrize("region", [HERE, AMS], ids=str)
def test_keys_lead_back_to_their_resource(region: Region) -> None:
    rows: dict[NeutronResource, PortRow | SecurityGroupRow | SubnetRow] = {
        NeutronResource("port", PORT): MIGRATING,
        NeutronResource("security-group", WEB): SecurityGroupRow(id=WEB),
        NeutronResource("subnet", SUBNET4): SubnetRow(id=SUBNET4, network_id="n", cidr="10.0.0.0/24"),
    }
    for resource, row in rows.items():
        for each in keys_of(row, region):
            assert resource_at(each.key, region) == resource
            assert kind_at(each.key, region) is each.kind
    assert {resource_at(each.key, region) for each in fleet_objects(region, "")} == {
        NeutronResource("fleet", "default")
    }


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b"/calico/resources/v3/projectcalico.org/networkpolicies/openstack/by-hand", BadReason.OTHER_KIND),
        (b"/calico/resources/v3/projectcalico.org/networkpolicies/openstack/ossg.default.", BadReason.OTHER_KIND),
        (b"/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/h-holdfast-w-e", BadReason.OTHER_KIND),
        (b"/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/odd", BadReason.STRANGE_KEY),
        (b"/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/-holdfast-d-p", BadReason.STRANGE_KEY),
        (b"/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/-openstack-d", BadReason.STRANGE_KEY),
        (b"/calico/resources/v3/projectcalico.org/nodes/n", BadReason.OTHER_KIND),
        (b"\xff", BadReason.OTHER_KIND),
    ],
    ids=str,
)
def test_keys_of_others_are_named_and_not_taken_for_ours(key: bytes, reason: BadReason) -> None:
    found = resource_at(key, HERE)
    assert isinstance(found, Bad)
    assert (found.key, found.reason) == (key, reason)


def test_an_endpoint_that_networking_calico_wrote_for_a_port_without_a_host_belongs_to_that_port() -> None:
    key = ENDPOINT.prefix(HERE) + HOME.removeprefix(ENDPOINT.prefix(HERE) + b"compute--1")

    assert resource_at(key, HERE) == NeutronResource("port", PORT)
    assert wanted_now(key, port(bindings=(bound(""),)), HERE) is None
    assert wanted_now(key, port(), HERE) == HOME


def test_a_deleted_port_is_wanted_nowhere() -> None:
    assert wanted_now(HOME, None, HERE) is None


def test_an_endpoint_on_the_right_host_is_wanted_there() -> None:
    assert wanted_now(HOME, port(), HERE) == HOME


def test_an_endpoint_on_the_old_host_has_moved() -> None:
    assert wanted_now(HOME, port(bindings=(bound("compute-2"),)), HERE) == AWAY


def test_an_endpoint_of_another_workload_has_moved() -> None:
    assert wanted_now(HOME.replace(b"843c1d87", b"00000000"), port(), HERE) == HOME


def test_during_a_migration_both_endpoints_are_wanted_where_they_are() -> None:
    assert wanted_now(HOME, MIGRATING, HERE) == HOME
    assert wanted_now(AWAY, MIGRATING, HERE) == AWAY
    assert wanted_now(MOVE, MIGRATING, HERE) == MOVE


def test_a_migration_ends_with_the_move_and_its_source_has_moved() -> None:
    done = port(bindings=(BindingRow("compute-1", "tap", "INACTIVE"), bound("compute-2")))
    assert wanted_now(MOVE, done, HERE) is None
    assert wanted_now(HOME, done, HERE) == AWAY


def test_a_port_without_a_host_is_wanted_nowhere() -> None:
    assert wanted_now(HOME, port(bindings=(bound("", vif_type="unbound"),)), HERE) is None


def test_a_port_that_neutron_binds_again_stays_and_one_that_it_binds_elsewhere_has_moved() -> None:
    assert wanted_now(HOME, port(bindings=(bound(vif_type="unbound"),)), HERE) == HOME
    assert wanted_now(HOME, port(bindings=(bound("compute-2", vif_type="unbound"),)), HERE) == AWAY


def test_a_migration_to_another_target_has_moved() -> None:
    elsewhere = port(bindings=(bound(profile='{"migrating_to": "compute-3"}'),))
    assert wanted_now(MOVE, elsewhere, HERE) == MOVE.replace(b"compute--2", b"compute--3")
