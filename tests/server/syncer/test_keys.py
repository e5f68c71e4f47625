"""Keys of a region: the quick check and the model agree on every key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.inventory.kinds import KINDS
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry

REGION = Region("ams")
LAYOUT = RegionKeys(REGION, KINDS)
parts = st.text(st.sampled_from("ab0-._é"), min_size=1, max_size=6).filter(lambda text: text.strip("-") == text)
names = st.builds(EndpointName, parts, st.sampled_from(["openstack", "holdfast"]), parts, parts)
tails = st.text(st.sampled_from("ab0-._/é\0"), max_size=20) | st.builds("-".join, st.lists(parts, max_size=5))


@given(tails | st.builds(lambda one, two: f"{one}-holdfast-{two}", tails, tails))
def test_an_endpoints_key_is_ours_exactly_when_the_model_can_read_it(tail: str) -> None:
    key = ENDPOINT.prefix(REGION) + tail.encode()
    assert LAYOUT.is_ours(Entry(key, b"{}")) is not isinstance(ENDPOINT.parse(key, REGION), Bad)


@given(names, names)
def test_two_keys_are_one_individual_exactly_when_the_names_agree_but_for_the_host(
    one: EndpointName, other: EndpointName
) -> None:
    keys = [ENDPOINT.key(REGION, name) for name in (one, other, one._replace(node="elsewhere"))]
    first, second, moved = map(LAYOUT.individual, keys)
    assert (first == second) is (one.individual == other.individual)
    assert first == moved


def test_every_prefix_has_its_kind_and_other_keys_have_none() -> None:
    for kind in KINDS:
        assert LAYOUT.kind(kind.prefix(REGION) + b"x") is kind
    for strange in (b"", b"/", b"/calico/", b"/zzz", HOST.prefix(REGION)[:-1]):
        with pytest.raises(ValueError, match="under none of our prefixes"):
            LAYOUT.kind(strange)


@given(names, names)
def test_a_migration_is_about_the_workload_of_its_endpoint_and_is_another_individual(
    one: EndpointName, other: EndpointName
) -> None:
    migrates, elsewhere = (MIGRATION.key(REGION, name) for name in (one, one._replace(node="elsewhere")))
    stands = ENDPOINT.key(REGION, other)
    assert (LAYOUT.workload(migrates) == LAYOUT.workload(stands)) is (one.individual == other.individual)
    assert LAYOUT.individual(migrates) == LAYOUT.individual(elsewhere) != LAYOUT.individual(stands)


def test_what_cannot_move_is_no_individual() -> None:
    assert LAYOUT.workload(HOST.key(REGION, "r1")) is None
    assert LAYOUT.individual(HOST.key(REGION, "r1")) is None
