"""Addresses, names, regions and timestamps: canonical forms, order, and refusals."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.base.address import (
    AddressRefused,
    address,
    address_order,
    interface,
    mac,
    prefix,
    prefix_order,
)
from holdfast.model.base.name import NameRefused, escape, join, segment, segments, split, unescape
from holdfast.model.base.region import Region
from holdfast.model.base.time import parse_time, rfc3339, utc
from tests.model.strategies import addresses, macs, moments, parts

sparse_ipv6 = st.lists(st.sampled_from((0, 0, 0, 1, 0xDB8, 0xFFFF)), min_size=8, max_size=8).map(
    lambda groups: sum(group << 16 * i for i, group in enumerate(groups))
)


@given(addresses)
def test_a_canonical_address_stays_as_it_is(text: str) -> None:
    assert address(text) == text == str(ip_address(text))


@given(sparse_ipv6)
def test_every_spelling_of_an_address_becomes_the_same(number: int) -> None:
    parsed = ip_address(number if number >= 2**32 else number + 2**32)
    if getattr(parsed, "ipv4_mapped", None) is None:
        assert address(parsed.exploded.upper()) == address(str(parsed)) == str(parsed)


@given(st.text("0123456789abcdef:./", max_size=24))
def test_an_accepted_text_is_a_canonical_address(text: str) -> None:
    try:
        accepted = address(text)
    except AddressRefused:
        return
    assert accepted == str(ip_address(text))


@given(addresses, st.integers(0, 128))
def test_a_prefix_from_the_wire_loses_its_host_bits(text: str, length: int) -> None:
    length = length if ":" in text else length // 4
    assert prefix(f"{text}/{length}", strict=False) == str(ip_network(f"{text}/{length}", strict=False))
    assert interface(f"{text}/{length}") == f"{text}/{length}"


def test_host_bits_of_a_prefix_are_refused_with_a_suggestion() -> None:
    with pytest.raises(AddressRefused, match=r"did you mean 10\.28\.0\.0/16\?"):
        prefix("10.28.0.7/16")


def test_an_address_alone_is_a_host_prefix() -> None:
    assert (prefix("10.0.0.1"), prefix("fd5f::1")) == ("10.0.0.1/32", "fd5f::1/128")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0",
        "10.0.0.01",
        "10.0.0.256",
        "１0.0.0.1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "::ffff:a00:1",
        "x" * 999,
    ],
)
def test_what_is_not_an_address_is_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        address(text)
    assert len(str(refused.value)) < 160


@pytest.mark.parametrize(
    "text", ["10.0.0.0/", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "10.0.0.0/08", "10.0.0.0/8/8", "/8"]
)
def test_what_is_not_a_prefix_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused):
        prefix(text)


@given(macs)
def test_every_spelling_of_a_mac_becomes_the_same(text: str) -> None:
    digits = text.replace(":", "")
    dotted = ".".join(digits[i : i + 4] for i in (0, 4, 8))
    assert {mac(text), mac(text.upper()), mac(text.replace(":", "-")), mac(dotted), mac(digits)} == {text}


@pytest.mark.parametrize("text", ["", "fa:16:3e", "fa:16:3e:00:00:0g", "fa:16:3e:00:00:00:00", "fa:16:3e:00:00:00\n"])
def test_what_is_not_a_mac_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused, match="is not a MAC address; write it as"):
        mac(text)


def test_order_is_numeric_and_ipv4_comes_first() -> None:
    texts = ["fd00::10", "10.0.0.10", "::1", "10.0.0.2", "fd00::2"]
    assert sorted(texts, key=address_order) == ["10.0.0.2", "10.0.0.10", "::1", "fd00::2", "fd00::10"]


def test_a_short_prefix_comes_before_a_longer_one_at_the_same_address() -> None:
    texts = ["10.0.0.0", "::/0", "10.0.0.0/8", "9.0.0.0/24", "10.0.0.0/16"]
    assert sorted(texts, key=prefix_order) == ["9.0.0.0/24", "10.0.0.0/8", "10.0.0.0/16", "10.0.0.0", "::/0"]


@given(st.lists(parts, min_size=1, max_size=5))
def test_joined_names_can_be_split(names: list[str]) -> None:
    assert split(join(names), len(names)) == names


@given(st.text("ab-", min_size=1, max_size=12), st.integers(1, 4))
def test_a_name_that_can_be_split_is_what_joining_gives(name: str, count: int) -> None:
    try:
        found = split(name, count)
    except NameRefused:
        return
    assert join(found) == name


@pytest.mark.parametrize("part", ["-a", "a-", "-", "", "a/b", "a\nb", "\0", "\ud800"])
def test_an_ambiguous_part_is_refused(part: str) -> None:
    with pytest.raises(NameRefused):
        join(["x", part])


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1))
def test_escaping_for_felix_is_undone(text: str) -> None:
    escaped = escape(text)
    assert "/" not in escaped
    assert unescape(escaped) == text


@given(st.text("%25fF/a", min_size=1).filter(lambda text: "/" not in text))
def test_what_can_be_unescaped_is_what_escaping_gives(text: str) -> None:
    try:
        plain = unescape(text)
    except NameRefused:
        return
    assert escape(plain) == text


def test_empty_segments_are_refused() -> None:
    with pytest.raises(NameRefused, match="has an empty name in it"):
        segments("a//b")
    with pytest.raises(NameRefused, match="has an empty name in it"):
        segment("")


@pytest.mark.parametrize(
    ("region", "piece", "namespace"),
    [(Region(), "no-region", "openstack"), (Region("ams-1"), "region-ams-1", "openstack-region-ams-1")],
)
def test_a_region_has_a_key_segment_and_a_namespace(region: Region, piece: str, namespace: str) -> None:
    assert (region.segment, region.namespace) == (piece, namespace)


@pytest.mark.parametrize("name", ["Ams", "-a", "a-", "a/b", "a b", "a" * 47, "ä"])
def test_a_region_that_cannot_be_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^region "):
        Region(name)


@given(moments)
def test_a_written_time_is_read_back_in_utc(moment: datetime) -> None:
    text = rfc3339(moment)
    assert text.endswith("Z")
    assert parse_time(text) == moment
    assert parse_time(text).tzinfo is UTC


def test_a_naive_time_is_refused_inside_holdfast() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        utc(datetime(2026, 11, 15))  # noqa: DTZ001
