"""What the interface of a workload on this host needs, and which hosts may send through the tunnel."""

from __future__ import annotations

import pytest

from holdfast.agent.claims import ClaimKey, ClaimKind, guarded, interface, interface_name, route, source
from holdfast.agent.claims import sender as sender_key
from holdfast.agent.desired.peers import Encapsulation, LocalHost, local_setup, peer
from holdfast.agent.desired.slim_endpoint import SlimEndpoint
from holdfast.agent.journal import codec
from holdfast.model.calico.host import Bgp, Host, HostAddress, HostSpec

PLAIN = LocalHost("me", sets_up_interfaces=True)
GUARDED = LocalHost("me", sets_up_interfaces=True, guards=True)


def keys(here: LocalHost, *prefixes: str, allowed: tuple[str, ...] = (), name: str = "tap1") -> list[ClaimKey]:
    endpoint = SlimEndpoint("me-w", "me", name, tuple(map(route, prefixes)), tuple(map(route, allowed)))
    return [key for key, _ in local_setup(endpoint, here)]


def test_an_interface_is_set_up_for_the_families_of_its_endpoint() -> None:
    assert keys(PLAIN, "10.65.0.1/32", "10.65.0.2/32") == [interface(4, "tap1")]
    assert keys(PLAIN, "fd65::1/128", "10.65.0.1/32") == [interface(4, "tap1"), interface(6, "tap1")]


def test_a_guarded_interface_may_send_from_its_own_and_from_allowed_addresses() -> None:
    found = keys(GUARDED, "10.65.0.1/32", allowed=("10.65.0.1/32", "10.66.0.0/24"))
    sources = [source("tap1", route(prefix)) for prefix in ("10.65.0.1/32", "10.66.0.0/24")]
    assert found == [interface(4, "tap1"), *sources, guarded("tap1")]


def test_a_network_inside_another_one_is_left_out() -> None:
    found = keys(GUARDED, "10.65.0.0/26", allowed=("10.65.0.0/24", "10.65.1.0/24"))
    assert [key.prefix.text for key in found if key.kind is ClaimKind.SOURCE] == ["10.65.0.0/24", "10.65.1.0/24"]


@pytest.mark.parametrize("name", ["", "sixteen-octets-x"])
def test_a_name_that_no_interface_can_have_needs_nothing(name: str) -> None:
    assert keys(GUARDED, "10.65.0.1/32", name=name) == []


def test_a_host_without_such_a_dataplane_sets_nothing_up() -> None:
    assert keys(LocalHost("me"), "10.65.0.1/32") == []


@pytest.mark.parametrize("key", [*keys(GUARDED, "10.65.0.0/26", "fd65::1/128"), interface(6, "fifteen-octets-")])
def test_keys_are_read_back_from_the_journal_and_name_their_interface(key: ClaimKey) -> None:
    assert codec.read_key(codec.write_key(key)) == key
    assert interface_name(key) in ("tap1", "fifteen-octets-")


def test_all_addresses_of_a_host_behind_the_tunnel_may_send_through_it() -> None:
    spec = HostSpec(
        bgp=Bgp(ipv4_address="192.0.2.7/24"), addresses=(HostAddress("198.51.100.7"), HostAddress("fd00::7"))
    )
    behind = LocalHost("me", Encapsulation.ALWAYS, guards=True)
    found = {key for key, _ in peer(Host.of("a", spec, uid="u"), behind).claims() if key.kind is ClaimKind.SENDER}
    assert found == {sender_key("192.0.2.7"), sender_key("198.51.100.7"), sender_key("fd00::7")}
    direct = LocalHost("me", Encapsulation.NEVER, guards=True)
    assert ClaimKind.SENDER not in {key.kind for key, _ in peer(Host.of("a", spec, uid="u"), direct).claims()}


def test_a_host_that_is_reached_directly_may_send_through_the_tunnel_because_it_may_encapsulate_already() -> None:
    there = Host.of("a", HostSpec(bgp=Bgp(ipv4_address="192.0.2.7/24")), uid="u")
    here = LocalHost("me", Encapsulation.CROSS_SUBNET, networks=("192.0.2.0/24",), guards=True)
    assert peer(there, here).tunnels() == []
    found = [key for key, _ in peer(there, here).claims() if key.kind is ClaimKind.SENDER]
    assert found == [sender_key("192.0.2.7")]


def test_keys_say_what_they_are() -> None:
    said = [str(key) for key in keys(GUARDED, "10.65.0.1/32")]
    assert said == ["interface tap1 for IPv4", "source 10.65.0.1/32 on tap1", "guarded interface tap1"]
