"""Claims of a source: whatever the history of its objects, the claims follow from their current state alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.claims import (
    ClaimKind,
    LocalRoute,
    Mode,
    NexthopEntry,
    RemoteRoute,
    TunnelAddress,
    VxlanDevice,
    device,
    forwarding,
    interface,
    neighbour,
    nexthop,
    route,
    tunnel_address,
)
from holdfast.agent.desired.peers import Encapsulation, LocalHost, Routing, peer
from holdfast.agent.desired.slim_endpoint import decode_endpoint, without_host
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.store.api import Delete, Put
from holdfast.testing import FakeStore
from holdfast.testing.fakes.kernel import FakeKernel
from tests.agent.harness import ME, REGION, Fleet, host
from tests.sim.expected_state import Object, wants

FLEET = Fleet(FakeStore())
HOSTS, WORKLOADS, NUMBERS = ["a", "b", "c"], ["v", "w"], [1, 2, 3]
PREFIXES = ["10.65.0.1/32", "10.65.0.2/32", "10.65.0.0/24"]

joins = st.builds(
    FLEET.joins,
    st.sampled_from(HOSTS),
    st.sampled_from(NUMBERS),
    uid=st.sampled_from(["", "other"]),
    tunnel=st.sampled_from(NUMBERS),
    mac=st.sampled_from(NUMBERS),
)
leaves = st.builds(FLEET.leaves, st.sampled_from(HOSTS))
runs = st.builds(
    lambda workload, on, prefixes: FLEET.runs(workload, on, *prefixes),
    st.sampled_from(WORKLOADS),
    st.sampled_from([*HOSTS, ME]),
    st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=2, unique=True),
)
ends = st.builds(FLEET.ends, st.sampled_from(WORKLOADS), st.sampled_from([*HOSTS, ME]))
anywhere = st.sampled_from([*HOSTS, ME])
migrates = st.builds(FLEET.migrates, st.sampled_from(WORKLOADS), anywhere, anywhere)
arrived = st.builds(FLEET.arrived, st.sampled_from(WORKLOADS), anywhere)


class Followed:
    """The claims of a source and, beside them, the objects that were written to it."""

    def __init__(
        self, here: LocalHost | None = None, blocked_by: Callable[[Any, Any], str | None] = lambda _key, _shape: None
    ) -> None:
        self.objects: dict[bytes, tuple[int, Object]] = {}
        self.revision = 0
        self.claims = SourceClaims(
            here or LocalHost(ME, Encapsulation.ALWAYS), REGION, self._created, self._created, blocked_by
        )

    def _created(self, key: bytes) -> int:
        return self.objects.get(key, (0,))[0]

    def tell(self, *operations: Put | Delete) -> set[Any]:
        touched: set[Any] = set()
        for operation in operations:
            self.revision += 1
            touched |= self._tell(operation)
        return touched

    def _tell(self, operation: Put | Delete) -> set[Any]:
        kind, hear = self._kind(operation.key)
        decoded = kind.decode(operation.key, operation.value) if isinstance(operation, Put) else None
        if operation.key in self.objects and self.objects[operation.key][1] == decoded:
            return set()  # as a mirror does: what is what it was has not changed
        created, _ = self.objects.pop(operation.key, (self.revision, None))
        if decoded is not None:
            self.objects[operation.key] = created, decoded
        if kind is ENDPOINT and isinstance(operation, Put):
            decoded = decode_endpoint(operation.key, operation.value)
        return hear(operation.key, decoded)  # type: ignore[no-any-return]

    def _kind(self, key: bytes) -> tuple[Any, Any]:
        claims = self.claims
        kinds: list[tuple[Any, Any]] = [
            (HOST, claims.set_host),
            (ENDPOINT, claims.set_endpoint),
            (MIGRATION, claims.set_migration),
        ]
        return next((kind, hear) for kind, hear in kinds if key.startswith(kind.prefix(REGION)))

    def wanted(self) -> Mapping[Any, Any]:
        """Wanted objects, without the tunnel devices that any peer behind them needs."""
        found = {key: self.claims.wanted(key) for key in self.claims if key.kind is not ClaimKind.DEVICE}
        return {key: one.claim.shape for key, one in found.items() if one is not None}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(joins, joins, leaves, runs, runs, ends, migrates, migrates, arrived), max_size=15))
def test_the_claims_follow_from_the_current_objects_whatever_the_history(operations: list[Put | Delete]) -> None:
    followed = Followed()
    for operation in operations:
        before = followed.wanted()
        touched = followed.tell(operation)
        after = followed.wanted()
        assert after == wants(followed.objects)
        assert {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} <= touched


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.one_of(joins, runs, runs, ends, migrates, migrates, arrived), max_size=15),
    st.sets(st.sampled_from([f"tap-{workload}" for workload in WORKLOADS])),
)
def test_an_arriving_workload_has_its_addresses_here_only_with_its_interface(
    operations: list[Put | Delete], interfaces: set[str]
) -> None:
    followed = Followed(blocked_by=FakeKernel(interfaces=interfaces).blocked_by)
    for operation in operations:
        followed.tell(operation)
    assert followed.wanted() == wants(followed.objects, interfaces)


def test_the_own_host_claims_nothing() -> None:
    followed = Followed()
    followed.tell(FLEET.joins(ME, 1))
    assert followed.wanted() == {}


def test_another_mac_of_our_own_changes_our_tunnel_device() -> None:
    followed = Followed()
    followed.tell(FLEET.joins("a", 1), FLEET.joins(ME, 2))
    assert followed.tell(FLEET.joins(ME, 2, mac=3)) == {device(4)}
    assert followed.claims.wanted(device(4)).claim.shape == VxlanDevice("66:00:00:00:00:03")  # type: ignore[union-attr]
    assert followed.claims.macs()[4] == "66:00:00:00:00:03"
    assert followed.tell(FLEET.joins(ME, 2, mac=3, uid="other")) <= {device(4)}


def test_a_workload_of_this_host_is_routed_to_its_interface() -> None:
    followed = Followed()
    followed.tell(FLEET.runs("w", ME, "10.65.0.1/32", interface="tap7"))
    assert followed.wanted() == {route("10.65.0.1/32"): LocalRoute("tap7")}


def test_a_workload_waits_for_its_host() -> None:
    followed = Followed()
    followed.tell(FLEET.runs("w", "a", "10.65.0.1/32"))
    assert followed.wanted() == {}
    followed.tell(FLEET.joins("a", 1))
    assert followed.wanted()[route("10.65.0.1/32")] == RemoteRoute("10.99.0.1")


def test_a_host_that_claims_our_own_address_is_refused_and_named() -> None:
    followed = Followed()
    followed.tell(FLEET.joins(ME, 1, tunnel=1), FLEET.joins("a", 2, tunnel=1))
    assert followed.wanted() == {tunnel_address("10.99.0.1"): TunnelAddress(32)}
    assert followed.claims.refusals() == ["host a claims 10.99.0.1, which is an address of this host"]


def test_a_host_that_cannot_be_reached_is_refused_and_named() -> None:
    found = peer(Host.of("a", HostSpec()), LocalHost(ME, Encapsulation.ALWAYS))
    assert list(found.claims()) == []
    assert found.refusal == "host a has no underlay address"


def test_hosts_on_one_segment_are_reached_directly_and_others_through_the_tunnel() -> None:
    def on(name: str, address: str, number: int) -> Put:
        spec = HostSpec(
            bgp=Bgp(ipv4_address=address),
            tunnel_ipv4=f"10.99.0.{number}",
            tunnel_mac=f"66:00:00:00:00:0{number}",
        )
        return Put(HOST.key(REGION, name), HOST.encode(Host.of(name, spec)))

    followed = Followed(LocalHost(ME, Encapsulation.CROSS_SUBNET))
    followed.tell(on("near", "192.0.2.2/24", 2), on("far", "198.51.100.3/24", 3))
    assert followed.wanted()[nexthop("10.99.0.2")] == NexthopEntry(Mode.VXLAN)
    touched = followed.tell(on(ME, "192.0.2.1/24", 1))
    assert followed.wanted() == {
        nexthop("192.0.2.2"): NexthopEntry(Mode.DIRECT),
        route("10.99.0.2/32"): RemoteRoute("192.0.2.2"),
        **{key: shape for key, shape in wants(followed.objects).items() if key in _tunnel(3)},
        route("10.99.0.3/32"): RemoteRoute("10.99.0.3", "10.99.0.1"),
        tunnel_address("10.99.0.1"): TunnelAddress(32),
    }
    assert touched >= {nexthop("192.0.2.2"), *_tunnel(2)}
    assert followed.tell(FLEET.leaves(ME)) == set()
    assert followed.wanted()[nexthop("192.0.2.2")] == NexthopEntry(Mode.DIRECT)


def _tunnel(number: int) -> set[Any]:
    return {
        forwarding(4, f"66:00:00:00:00:0{number}"),
        neighbour(f"10.99.0.{number}"),
        nexthop(f"10.99.0.{number}"),
    }


def test_both_families_of_a_host_have_their_own_gateway() -> None:
    spec = HostSpec(
        bgp=Bgp("192.0.2.2/24", "2001:db8::2/64"),
        tunnel_ipv4="10.99.0.2",
        tunnel_ipv6="fd99::2",
        tunnel_mac="66:00:00:00:00:02",
        tunnel_mac_v6="66:00:00:00:06:02",
    )
    found = peer(Host.of("a", spec), LocalHost(ME, Encapsulation.ALWAYS))
    assert (found.route(4), found.route(6)) == (RemoteRoute("10.99.0.2"), RemoteRoute("fd99::2"))
    assert [key.kind for key, _ in found.claims()] == 2 * [
        ClaimKind.FORWARDING,
        ClaimKind.NEIGHBOUR,
        ClaimKind.NEXTHOP,
        ClaimKind.ROUTE,
    ]


@pytest.mark.parametrize("host", ["a", "r-1", "a--b"])
def test_an_endpoint_is_known_by_its_name_without_its_host(host: str) -> None:
    name = EndpointName(host, "holdfast", "w-1", "eth-0")
    assert without_host(str(name), host) == name.individual


def test_a_migration_that_goes_nowhere_any_more_claims_nothing() -> None:
    followed = Followed()
    followed.tell(FLEET.runs("w", "a", "10.65.0.1/32"), FLEET.migrates("w", "a", ME))
    assert followed.wanted() == {route("10.65.0.1/32"): LocalRoute("tap-w")}
    assert followed.tell(FLEET.migrates("w", ME, ME)) == {route("10.65.0.1/32")}
    assert followed.wanted() == {}


def test_a_conflict_names_every_claimant_and_ends_with_the_last_loser() -> None:
    followed = Followed()
    followed.tell(FLEET.runs("v", ME, "10.65.0.1/32"), FLEET.joins("a", 1), FLEET.runs("w", "a", "10.65.0.1/32"))
    (contest,) = followed.claims.conflicts()
    assert str(contest) == (
        "route 10.65.0.1/32 is claimed by endpoint me-holdfast-v-eth0 on me and also by endpoint "
        "a-holdfast-w-eth0 on a; the oldest object keeps it"
    )
    followed.tell(FLEET.ends("v", ME))
    assert followed.claims.conflicts() == []
    assert followed.wanted()[route("10.65.0.1/32")] == RemoteRoute("10.99.0.1")


def test_the_models_equal_what_the_harness_writes() -> None:
    """The harness writes objects that the model accepts."""
    made = host("a", 1)
    assert made.underlay(4) == "192.0.2.1"
    assert isinstance(ENDPOINT.decode(*_of(FLEET.runs("w", "a", "10.65.0.1/32"))), Endpoint)
    assert isinstance(MIGRATION.decode(*_of(FLEET.migrates("w", "a", "b"))), Migration)
    assert Region() == REGION


def _of(put: Put) -> tuple[bytes, bytes]:
    return put.key, put.value


def test_another_underlay_address_has_the_local_interfaces_compared_with_bgp() -> None:
    found = Followed(LocalHost(ME, routing=Routing.BGP, sets_up_interfaces=True))
    found.tell(FLEET.joins(ME, 7), FLEET.runs("w", ME, "10.65.0.1/32"))
    assert interface(4, "tap-w") in found.tell(FLEET.joins(ME, 8))
    assert found.tell(FLEET.joins(ME, 8, mac=3)) == set()
