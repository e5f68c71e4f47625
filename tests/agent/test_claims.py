"""Keys and their order, shapes, and the form of both in the journal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.claims import (
    AT_A_TIME,
    KINDS,
    NO_OWNER,
    Claim,
    ClaimKey,
    ClaimKind,
    FdbEntry,
    LocalRoute,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    Owner,
    RemoteRoute,
    RoutingRule,
    Shape,
    depends_on,
    device,
    forwarding,
    in_order,
    neighbour,
    nexthop,
    portions,
    route,
    rule,
)
from holdfast.agent.journal import codec
from holdfast.reconcile import Owned
from holdfast.runtime.cooperative import at_once

text = st.text(max_size=20)
shapes: st.SearchStrategy[Shape] = st.one_of(
    st.builds(RoutingRule, st.integers(0, 2**31)),
    st.builds(FdbEntry, text),
    st.builds(NeighbourEntry, text),
    st.builds(NexthopEntry, st.sampled_from(Mode)),
    st.builds(RemoteRoute, text),
    st.builds(LocalRoute, text),
)
keys = st.one_of(
    st.builds(ClaimKey, st.sampled_from(ClaimKind), st.just(4), st.integers(0, 2**32 - 1), st.integers(0, 32)),
    st.builds(ClaimKey, st.sampled_from(ClaimKind), st.just(6), st.integers(0, 2**128 - 1), st.integers(0, 128)),
)
any_keys = st.builds(
    ClaimKey, st.sampled_from(ClaimKind), st.sampled_from([4, 6]), st.integers(0, 2**128 - 1), st.integers(0, 128)
)
close_keys = st.builds(
    ClaimKey, st.sampled_from(ClaimKind), st.sampled_from([4, 6]), st.integers(0, 3), st.integers(0, 3)
)
owned = st.builds(
    Owned,
    st.builds(Claim, shapes, st.builds(Owner, text, text, text)),
    text,
    st.integers(0, 2**62),
)


@given(keys, owned)
def test_what_is_written_down_is_read_back(key: ClaimKey, what: Owned[Claim]) -> None:
    assert codec.read_key(codec.write_key(key)) == key
    assert codec.read(codec.write(what)) == what


def test_that_it_is_missing_now_is_not_written_down() -> None:
    missing = Owned(Claim(RemoteRoute("10.0.0.1"), Owner("a"), missing=True), "region", 1)
    assert codec.read(codec.write(missing)) == Owned(Claim(RemoteRoute("10.0.0.1"), Owner("a")), "region", 1)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_none(data: bytes) -> None:
    key, what = codec.read_key(data), codec.read(data)
    assert key is None or isinstance(key, ClaimKey)
    assert what is None or isinstance(what, Owned)


@given(st.lists(keys.map(codec.write_key) | st.binary(max_size=12)))
def test_many_keys_are_read_as_each_of_them_is(texts: list[bytes]) -> None:
    assert codec.read_keys(texts) == [text if (key := codec.read_key(text)) is None else key for text in texts]


def test_fields_that_a_later_release_adds_to_a_record_are_ignored() -> None:
    plain = Owned(Claim(LocalRoute("tap1"), Owner("a")), "region", 7)
    longer = codec.write(plain)[:-1] + b', "something new"]'
    assert codec.read(longer) == plain


def test_keys_sort_as_they_are_applied_and_as_people_count() -> None:
    ordered = [
        rule(4, 100),
        forwarding(4, "66:00:00:00:00:01"),
        neighbour("10.0.0.2"),
        neighbour("10.0.0.10"),
        nexthop("10.0.0.2"),
        nexthop("fd00::1"),
        route("10.0.0.0/8"),
        route("10.0.0.0/24"),
        route("10.0.0.10/32"),
        route("fd00::/64"),
    ]
    assert sorted(set(ordered)) == ordered


def test_keys_read_as_people_write_them() -> None:
    assert [str(key) for key in (rule(6, 100), forwarding(4, "66:00:00:00:00:0a"), nexthop("fd00::1"))] == [
        "rule IPv6 table 100",
        "forwarding 66:00:00:00:00:0a",
        "nexthop fd00::1",
    ]
    assert str(route("10.65.0.0/26")) == "route 10.65.0.0/26"
    assert str(neighbour("10.0.0.1")) == "neighbour 10.0.0.1"


def test_each_kind_depends_only_on_kinds_before_it() -> None:
    chain: list[tuple[ClaimKey, Shape]] = [
        (route("10.65.0.1/32"), RemoteRoute("10.99.0.1")),
        (nexthop("10.99.0.1"), NexthopEntry(Mode.VXLAN)),
        (neighbour("10.99.0.1"), NeighbourEntry("66:00:00:00:00:01")),
        (forwarding(4, "66:00:00:00:00:01"), FdbEntry("192.0.2.1")),
    ]
    assert [depends_on(*each) for each in chain] == [*((key,) for key, _ in chain[1:]), (device(4),)]
    ranks = [KINDS.rank(KINDS.of(key)) for key, _ in chain]
    assert ranks == sorted(ranks, reverse=True)


def test_a_direct_nexthop_and_a_local_route_depend_on_nothing() -> None:
    assert depends_on(nexthop("192.0.2.1"), NexthopEntry(Mode.DIRECT)) == ()
    assert depends_on(route("10.65.0.1/32"), LocalRoute("tap1")) == ()
    assert not NO_OWNER


@given(st.sets(any_keys | close_keys))
def test_it_is_the_order_that_keys_have_of_themselves(some: set[ClaimKey]) -> None:
    assert at_once(in_order(some)) == sorted(some)


def test_portions_are_all_of_it_a_few_at_a_time() -> None:
    everything = range(2 * AT_A_TIME + 1)
    cut = [list(some) for some in portions(everything)]
    assert [len(some) for some in cut] == [AT_A_TIME, AT_A_TIME, 1]
    assert [one for some in cut for one in some] == list(everything)
