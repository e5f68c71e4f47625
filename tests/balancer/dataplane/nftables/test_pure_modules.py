"""Pure modules: names and comments that are read back, the order of steps, the kernel's hash."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from holdfast.balancer.dataplane.api import Client
from holdfast.balancer.dataplane.nftables import conntrack, layout
from holdfast.balancer.dataplane.nftables import ruleset as structure
from holdfast.balancer.dataplane.nftables.flow_hash import bucket, jhash
from holdfast.balancer.dataplane.nftables.layout import VIP_MAPS, backend_map, mark_of, vip_map
from holdfast.balancer.dataplane.nftables.ruleset import TableShape
from holdfast.balancer.dataplane.nftables.snapshot import PlacedBackend, TableSnapshot, VipContent, table_of
from holdfast.balancer.dataplane.nftables.vip_update import UpdateSteps, VipUpdate, steps
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import BackendEntry, Vip, VipKey, VipSettings, backend
from holdfast.netlink import wire
from holdfast.netlink.nftables import elements
from holdfast.netlink.nftables.elements import Element, Transaction
from tests.balancer.dataplane.conformance import ONE, SIX, TWO, V4, change

SHAPE = TableShape("holdfast")
SIZE = VipSettings().table_size


def addresses(family: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << (32 if family == 4 else 128)) - 1)


PORTS = st.integers(0, 65_535)
FAMILIES = st.sampled_from([4, 6])
VIPS = FAMILIES.flatmap(
    lambda family: st.one_of(
        st.builds(Vip, st.just(family), addresses(family), st.sampled_from([6, 17]), PORTS),
        st.builds(Vip, st.just(family), addresses(family), st.just(0), st.just(0)),
    )
)
KEYS = VIPS.flatmap(
    lambda vip: st.builds(VipKey, st.just(vip), st.builds(BackendId, st.just(vip.family), addresses(vip.family), PORTS))
)
ENTRIES = st.builds(BackendEntry, st.integers(0, 100), st.booleans())


@given(VIPS)
def test_the_key_of_a_vip_is_read_back(vip: Vip) -> None:
    assert vip_map(vip).vip(vip_map(vip).key(vip)) == vip


@given(st.sampled_from(VIP_MAPS), st.binary(max_size=40))
def test_a_foreign_key_is_refused(where: layout.VipMap, key: bytes) -> None:
    try:
        vip = where.vip(key)
    except ValueError:
        return
    assert len(where.key(vip)) == len(key)


@given(KEYS, ENTRIES)
def test_the_comment_of_an_entry_is_read_back(key: VipKey, entry: BackendEntry) -> None:
    comment = layout.entry_comment(key, entry)
    assert layout.entry_from(comment) == (key, entry)
    assert len(comment.encode()) < 128, "the tool shows no longer ones"


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "mine",
        "192.0.2.1:80/tcp 10.0.0.1:80 weight",
        "192.0.2.1:80/sctp 10.0.0.1:80 weight 1",
        "192.0.2.999:80/tcp 10.0.0.1:80 weight 1",
        "192.0.2.1:80/tcp 10.0.0.1:99999 weight 1",
    ],
)
def test_a_foreign_comment_is_not_an_entry(comment: str) -> None:
    with pytest.raises(ValueError, match=r"not an entry|not a VIP|not a port|Octet"):
        layout.entry_from(comment)


@given(VIPS)
def test_names_are_what_the_tool_takes_and_of_one_vip(vip: Vip) -> None:
    for name in (layout.chain_of(vip), layout.buckets_of(vip, 65_537)):
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
        assert name[0].isalpha()
        assert len(name) < 128
        assert layout.belongs_to_a_vip(name)


@given(KEYS)
def test_a_mark_is_stable_and_unique(key: VipKey) -> None:
    first = mark_of(key, ())
    assert layout.is_mark(first)
    assert mark_of(key, ()) == first
    assert mark_of(key, {first}) != first


def test_a_changed_rule_has_another_fingerprint() -> None:
    plain, sticky = (structure.vip_fingerprints(SHAPE, V4, VipSettings(sticky)) for sticky in (False, True))
    other = structure.vip_fingerprints(SHAPE, V4, VipSettings(table_size=1021))
    assert len({plain, sticky, other}) == 3


@pytest.mark.parametrize(("seed", "expected"), [(0, 0xDEADBEEF), (0xDEADBEEF, 0xBD5B7DDE)])
def test_the_hash_of_nothing_is_the_published_one(seed: int, expected: int) -> None:
    assert jhash(b"", seed) == expected


@given(addresses(6), st.integers(1, 65_535), st.booleans())
def test_a_bucket_is_in_the_table_and_sticky_ones_do_not_look_at_the_port(
    address: int, port: int, sticky: bool
) -> None:
    found = bucket(Client(6, address, port), VipSettings(sticky, 1021))
    assert 0 <= found < 1021
    if sticky:
        assert found == bucket(Client(6, address, 0), VipSettings(table_size=1021))


def settled(*entries: tuple[BackendId, BackendEntry]) -> TableSnapshot:
    """A snapshot in which V4 is served by these."""
    snapshot = TableSnapshot(SHAPE)
    snapshot.put_frame()
    placed = {one: PlacedBackend(mark_of(VipKey(V4, one), ()), entry) for one, entry in entries}
    snapshot.put(V4, VipContent(VipSettings(), placed))
    snapshot.maps.add(layout.buckets_of(V4, SIZE))
    snapshot.put_chains([(V4, VipSettings())])
    return snapshot


def planned(snapshot: TableSnapshot, update: VipUpdate) -> UpdateSteps:
    entries = snapshot.contents[V4].entries
    marks = {one: placed.mark for one, placed in entries.items()}
    before = table_of({one: placed.entry for one, placed in entries.items()}, marks, SIZE)
    return steps(update, snapshot, before, set(snapshot.marks()))


def test_an_unchanged_update_makes_no_write() -> None:
    snapshot = settled((ONE, BackendEntry(100)), (TWO, BackendEntry(0, kill=True)))
    found = planned(snapshot, VipUpdate.of(V4, snapshot.contents[V4]))
    assert not found.first
    assert not found.then
    assert list(found.ended) == []


def test_flows_are_said_to_be_ended_only_after_they_were() -> None:
    snapshot = settled((ONE, BackendEntry(100)), (TWO, BackendEntry(100)))
    update = VipUpdate.of(V4, snapshot.contents[V4])
    assert update.take(change(VipKey(V4, ONE), BackendEntry(0, kill=True))) is None
    found = planned(snapshot, update)
    assert b"weight 0\0" in found.first.packed()
    assert b"ended" not in found.first.packed()
    assert list(found.ended) == [mark_of(VipKey(V4, ONE), ())]
    assert b"weight 0 ended\0" in found.then.packed()
    assert mark_of(VipKey(V4, ONE), ()) not in found.after


def test_an_entry_that_goes_is_removed_only_after_its_flows_were_ended() -> None:
    snapshot = settled((ONE, BackendEntry(100)), (TWO, BackendEntry(100)))
    update = VipUpdate.of(V4, snapshot.contents[V4])
    update.take(change(VipKey(V4, ONE), None))
    found = planned(snapshot, update)
    where = backend_map(VipKey(V4, ONE)).name.encode()
    assert where not in found.first.packed()
    assert where in found.then.packed()
    assert found.content == VipContent(VipSettings(), {TWO: snapshot.contents[V4].entries[TWO]})


def test_a_vip_that_goes_ends_all_its_flows() -> None:
    snapshot = settled((ONE, BackendEntry(100)), (TWO, BackendEntry(0)))
    update = VipUpdate.of(V4, snapshot.contents[V4])
    update.take(change(VipKey(V4), None))
    assert set(planned(snapshot, update).ended) == set(snapshot.marks())


@pytest.mark.parametrize(
    ("key", "word"),
    [(VipKey(V4, SIX), "not of the address family"), (VipKey(Vip.of("192.0.2.9", "tcp", 1), ONE), "no such VIP")],
)
def test_impossible_entries_are_refused_with_a_sentence(key: VipKey, word: str) -> None:
    update = VipUpdate.of(key.vip, settled((ONE, BackendEntry(1))).contents.get(key.vip, VipContent()))
    assert word in (update.take(change(key, BackendEntry(1))) or "")


@given(st.integers(0, 2**16), st.integers(0, 2**16))
def test_moving_a_table_touches_only_what_differs(one: int, other: int) -> None:
    before, after = (np.random.default_rng(seed).integers(0, 3, 500).astype(np.uint32) for seed in (one, other))
    transaction = Transaction("t")
    transaction.move("buckets", before, after)
    touched: dict[int, list[int]] = {elements.NEW_ELEMENT: [], elements.DELETE_ELEMENT: []}
    for message in wire.messages(transaction.packed()):
        if message.type in touched:
            packed = wire.attributes(message.body, 4)[3]
            found = [elements.key_of(element) for element in elements._each(packed)]
            touched[message.type] += [int.from_bytes(key, "little") for key in found]
    differs = np.flatnonzero(before != after)
    assert touched[elements.DELETE_ELEMENT] == differs[before[differs] != 0].tolist()
    assert touched[elements.NEW_ELEMENT] == differs[after[differs] != 0].tolist()


def test_a_transaction_asks_for_one_answer_to_its_last_request() -> None:
    transaction = Transaction("t")
    transaction.add("m", Element(b"\1\0\0\0"))
    transaction.delete("m", Element(b"\2\0\0\0"))
    asking = [
        message.sequence for message in wire.messages(transaction.packed()) if message.flags & wire.MessageFlag.ACK
    ]
    assert asking == [transaction.last]


def test_ending_flows_always_names_a_whole_mark() -> None:
    (message,) = wire.messages(conntrack.ending(0x4800_0001))
    found = wire.attributes(message.body, 4)
    assert bytes(found[8]) == bytes.fromhex("48000001")
    assert bytes(found[21]) == b"\xff\xff\xff\xff"


def test_a_backend_without_a_port_or_for_all_protocols_is_known_by_its_address() -> None:
    wide = Vip.of("192.0.2.1", "any", 0)
    assert not backend_map(VipKey(wide, backend("10.0.0.1", 80))).has_port
    assert not backend_map(VipKey(V4, backend("10.0.0.1", 0))).has_port
    assert backend_map(VipKey(V4, ONE)).has_port
