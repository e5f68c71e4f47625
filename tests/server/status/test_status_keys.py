"""Status keys of endpoints: the quick path gives the right key for every name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.inventory.kinds import name_of
from holdfast.model.base.bad import Bad
from holdfast.model.base.name import NameRefused
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS
from holdfast.server.status.rules.bindings import Bindings
from holdfast.server.status.rules.endpoints import EndpointRules

PARTS = st.text("ab-%/0é\x07", min_size=1, max_size=6)
REGIONS = st.sampled_from([Region(), Region("ams")])


@given(REGIONS, PARTS, st.sampled_from(["openstack", "holdfast"]), PARTS, PARTS)
def test_both_ways_to_a_status_key_agree(region: Region, node: str, word: str, workload: str, endpoint: str) -> None:
    subject = Bindings(region)
    try:
        key = ENDPOINT.key(region, EndpointName(node, word, workload, endpoint))  # type: ignore[arg-type]
    except NameRefused:
        return
    assert subject.status_key(key) == subject._any_status_key(key)


@given(REGIONS, st.binary(max_size=30))
def test_whatever_the_bytes_both_ways_agree(region: Region, tail: bytes) -> None:
    subject = Bindings(region)
    key = ENDPOINT.prefix(region) + tail
    assert subject.status_key(key) == subject._any_status_key(key)


def test_an_endpoint_of_another_region_has_no_status_here() -> None:
    name = EndpointName("cn-c-compute-1", "holdfast", "w1", "eth0")
    for other in (Region(), Region("fra"), Region("x")):
        assert Bindings(Region("ams")).status_key(ENDPOINT.key(other, name)) is None


@given(REGIONS, PARTS, PARTS, PARTS)
def test_an_endpoint_is_shown_by_the_name_that_the_inventory_has_for_it(
    region: Region, node: str, workload: str, endpoint: str
) -> None:
    subject = EndpointRules(region)
    name = EndpointName(node, "holdfast", workload, endpoint)
    try:
        key = ENDPOINT.key(region, name)
    except NameRefused:
        return
    status = subject.bindings.status_key(key)
    assert status is not None
    assert not isinstance(ENDPOINT_STATUS.parse(status, region), Bad)
    assert subject.object_name(status) == name_of(name)
    assert subject.show(status) == f"endpoint {name}"
    subject.bindings.add([key])
    assert subject.show(status) == f"endpoint {name}"


@given(REGIONS, st.text("ab-%2f/é\x07.", max_size=12), st.text("ab-%2f/é\x07.", max_size=12))
def test_a_key_is_readable_for_the_worker_exactly_if_it_can_be_parsed(region: Region, workload: str, end: str) -> None:
    key = ENDPOINT_STATUS.prefix(region) + f"r1/workload/holdfast/{workload}/endpoint/{end}".encode()
    found, name = EndpointRules(region).decode(key, b'{"status":"up"}'), ENDPOINT_STATUS.parse(key, region)
    assert (found if isinstance(found, Bad) else None) == (name if isinstance(name, Bad) else None)
