"""Slim endpoints: what they keep is what the whole object has, and nothing else of it matters."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from holdfast.agent.claims import route
from holdfast.agent.desired.slim_endpoint import SlimEndpoint, decode_endpoint
from holdfast.model.base.bad import Bad
from holdfast.model.base.name import join
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from tests.agent.desired.harness import slim
from tests.agent.harness import REGION, Fleet
from tests.model import strategies

PUT = Fleet.runs(Fleet(None), "w-1", "host-a", "10.65.0.1/32")  # type: ignore[arg-type]  # it writes nothing


@settings(max_examples=100, deadline=None)
@given(strategies.endpoints())
def test_a_slim_endpoint_has_name_host_interface_and_prefixes_of_the_whole_one(
    made: tuple[EndpointName, Endpoint],
) -> None:
    name, whole = made
    found = slim(msgspec.structs.replace(whole, metadata=msgspec.structs.replace(whole.metadata, namespace="")))
    networks, allowed = map(route, whole.spec.ip_networks), map(route, whole.spec.allowed_ips)
    assert found == SlimEndpoint(join(name), name.node, whole.spec.interface_name, tuple(networks), tuple(allowed))
    assert (found.name, found.individual) == (name, name.individual)
    moved = name._replace(node="else-where")
    assert (found.at(moved).name, found.at(moved).prefixes) == (moved, found.prefixes)


def test_an_edit_of_labels_is_no_change() -> None:
    whole = ENDPOINT.decode(PUT.key, PUT.value)
    assert isinstance(whole, Endpoint)
    edited = msgspec.structs.replace(whole, metadata=msgspec.structs.replace(whole.metadata, labels={"a": "b"}))
    assert decode_endpoint(PUT.key, ENDPOINT.encode(edited)) == decode_endpoint(PUT.key, PUT.value) == slim(whole)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"10.65.0.1/32", b"10.65.0.1/99"),
        (b'"node":"host-a"', b'"node":"host-b"'),
        (b'"workload":"w-1"', b'"workload":""'),
        (b"WorkloadEndpoint", b"Node"),
        (b"{", b"["),
    ],
)
def test_a_value_that_does_not_fit_is_bad_as_it_is_for_everybody(old: bytes, new: bytes) -> None:
    assert old in PUT.value
    changed = PUT.value.replace(old, new, 1)
    assert isinstance(ENDPOINT.decode(PUT.key, changed), Bad)
    assert isinstance(decode_endpoint(PUT.key, changed), Bad)


def test_what_is_wrong_elsewhere_in_the_value_does_not_matter() -> None:
    changed = PUT.value.replace(b'"interfaceName"', b'"mac":"nonsense","interfaceName"')
    assert isinstance(ENDPOINT.decode(PUT.key, changed), Bad)
    assert decode_endpoint(PUT.key, changed) == decode_endpoint(PUT.key, PUT.value)


def test_the_key_must_fit_the_name() -> None:
    other = ENDPOINT.key(REGION, EndpointName("host-b", "holdfast", "w-1", "eth0"))
    assert isinstance(decode_endpoint(other, PUT.value), Bad)
