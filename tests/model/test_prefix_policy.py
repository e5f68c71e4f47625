"""Prefix policy: which prefixes may become routes, and the sentence for those that may not."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.fleet.prefix_policy import PrefixPolicy, forbidden, parsed

STORE = {"10.28.0.5": "an address of the store", "2001:db8::5": "an address of the store"}


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("0.0.0.0/0", "default route"),
        ("::/0", "default route"),
        ("0.0.0.0/1", "overlaps the loopback prefix 127.0.0.0/8"),
        ("128.0.0.0/1", "overlaps the link-local prefix 169.254.0.0/16"),
        ("127.0.0.1/32", "overlaps the loopback prefix 127.0.0.0/8"),
        ("169.254.1.1/32", "overlaps the link-local prefix"),
        ("239.1.2.3/32", "overlaps the multicast prefix 224.0.0.0/4"),
        ("::1/128", "overlaps the loopback prefix ::1/128"),
        ("fe80::1/128", "overlaps the link-local prefix fe80::/10"),
        ("ff02::1/128", "overlaps the multicast prefix ff00::/8"),
    ],
)
def test_prefixes_that_are_wrong_in_every_fleet_stay_refused_even_if_they_are_allowed(prefix: str, why: str) -> None:
    refusal = PrefixPolicy(allowed=frozenset([parsed(prefix)])).refusal(parsed(prefix))
    assert refusal is not None
    assert why in refusal.why


@pytest.mark.parametrize("prefix", ["10.28.0.7/32", "10.0.0.0/8", "192.0.2.0/24", "2001:db8::7/128", "fd00::/8"])
def test_other_prefixes_are_accepted(prefix: str) -> None:
    assert PrefixPolicy().refusal(parsed(prefix)) is None


@pytest.mark.parametrize("prefix", ["10.28.0.5/32", "10.28.0.0/24", "2001:db8::/64"])
def test_a_prefix_that_covers_the_store_is_refused_unless_it_is_allowed_exactly(prefix: str) -> None:
    refusal = PrefixPolicy(STORE).refusal(parsed(prefix))
    assert refusal is not None
    assert "an address of the store" in refusal.why
    assert refusal.way_out == "choose another address, or name exactly this prefix in agent.allowed_prefixes"
    around = frozenset([parsed("10.0.0.0/8"), parsed("2001:db8::/32")])
    assert PrefixPolicy(STORE, around).refusal(parsed(prefix)) is not None
    assert PrefixPolicy(STORE, frozenset([parsed(prefix)])).refusal(parsed(prefix)) is None


@given(st.ip_addresses(v=4), st.integers(1, 32), st.sets(st.ip_addresses(v=4).map(str), max_size=20))
def test_a_prefix_is_refused_exactly_if_it_contains_a_protected_address(
    address: object, length: int, protected: set[str]
) -> None:
    network = ip_network(f"{address}/{length}", strict=False)
    prefix = parsed(str(network))
    if forbidden(prefix) is not None:
        return
    refused = PrefixPolicy(dict.fromkeys(protected, "a host")).refusal(prefix) is not None
    assert refused == any(ip_address(one) in network for one in protected)
