"""Keys of one host: all of its own, and none of a host whose name begins like it."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.store.host_keys import HostNameRefused, keys_of

REGION = Region()
AWKWARD = [
    "rack",
    "rack-1",
    "rack--1",
    "rack-1-1",
    "rack.1",
    "rack1",
    "rac",
    "rack-openstack",
    "RACK",
    "räck",
    "rack_1",
]
"""Each is a prefix of another one, or differs from it in a character around the hyphen."""
names = st.text(st.characters(exclude_characters="/", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8).filter(
    lambda text: text.strip("-") == text
)


def watched(host: str, key: bytes) -> bool:
    return any(key in each for each in keys_of(host, REGION))


def keys(host: str) -> list[bytes]:
    """A key of each kind that belongs to a host."""
    endpoints = [EndpointName(host, orchestrator, "w-1", "eth0") for orchestrator in ("openstack", "holdfast")]
    return [HOST.key(REGION, host), *(kind.key(REGION, one) for kind in (ENDPOINT, MIGRATION) for one in endpoints)]


@pytest.mark.parametrize("host", AWKWARD)
@pytest.mark.parametrize("other", AWKWARD)
def test_a_host_watches_its_own_keys_and_no_other_hosts(host: str, other: str) -> None:
    assert [watched(host, key) for key in keys(other)] == [host == other] * 5


@given(names, names, st.text("-.a0", max_size=3), st.sampled_from(["openstack", "holdfast"]))
def test_whatever_the_hosts_are_called(host: str, other: str, tail: str, orchestrator: str) -> None:
    for name in (other, host + tail, host[:-1]):
        assume(name and name.strip("-") == name)
        assert {watched(host, key) for key in keys(name)} == {host == name}


def test_a_name_that_no_endpoint_can_have_is_refused() -> None:
    with pytest.raises(HostNameRefused, match=r"'rack-' .* ends with a hyphen.*in agent.host"):
        keys_of("rack-", REGION)
