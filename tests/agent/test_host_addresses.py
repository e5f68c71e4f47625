"""Selection of the addresses in a host's report."""

from __future__ import annotations

from ipaddress import ip_address

from holdfast.agent.host_addresses import LIMIT, addresses_here, chosen


def held(text: str, length: int) -> tuple[bytes, int]:
    return ip_address(text).packed, length


def test_loopback_and_link_local_addresses_mean_nothing_to_others() -> None:
    found = [held("127.0.0.1", 8), held("::1", 128), held("fe80::1", 64), held("169.254.0.1", 16)]
    assert chosen([*found, held("192.0.2.7", 24)]) == ("192.0.2.7/24",)


def test_networks_come_before_single_addresses_and_ipv4_first() -> None:
    found = [held("2001:db8::7", 64), held("198.51.100.1", 32), held("192.0.2.7", 24)]
    assert chosen(found) == ("192.0.2.7/24", "198.51.100.1/32", "2001:db8::7/64")


def test_a_host_with_many_addresses_reports_a_few() -> None:
    assert len(chosen([held(f"198.51.100.{n}", 32) for n in range(200)])) == LIMIT


def test_the_addresses_of_this_namespace_can_be_read_by_anybody() -> None:
    assert all("/" in one for one in addresses_here())
