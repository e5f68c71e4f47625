"""Connections survive changes of the table, the table survives restarts, and foreign tables stay untouched."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape
from holdfast.balancer.dataplane.nftables import ruleset as structure
from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.dataplane.nftables.layout import buckets_of, mark_of
from holdfast.balancer.dataplane.nftables.vip_update import VipUpdate
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings, backend
from holdfast.netlink.nftables import elements
from holdfast.reconcile import Away, Change
from holdfast.testing.fault import fault
from tests.balancer.dataplane.conformance import change, made
from tests.balancer.dataplane.nftables.harness import SIZE, TABLE, V4, V6, WEB4, WEB6, Ground, by_server, is_served

FOREIGN = """
table inet firewall {
  set friends { type ipv4_addr; elements = { 10.9.9.9 }; };
  chain input { type filter hook input priority 0; policy accept; ip saddr @friends counter accept; };
};
table ip nat { chain prerouting { type nat hook prerouting priority -100; policy accept; }; };
"""


def served(vip: Vip = V4, *, sticky: bool = False, weight: int = 100) -> list[Change[VipKey, Value]]:
    web = WEB4 if vip.family == 4 else WEB6
    return [
        change(VipKey(vip), VipSettings(sticky)),
        *(change(VipKey(vip, one), BackendEntry(weight)) for one in web.values()),
    ]


def everybody(turn: VipUpdate, marks: Mapping[BackendId, int]) -> list[int]:
    """An update that ends all flows of the VIP."""
    return list(marks.values())


@fault(
    "B19",
    without="holdfast.balancer.dataplane.nftables.vip_update:ended_marks",
    by=f"{__name__}:everybody",
    sees=(ConnectionResetError, r"\[Errno \d+\] Connection reset by peer"),
)
def test_B19_established_connections_keep_their_backend_over_every_change_of_the_table(ground: Ground) -> None:
    ground.make(*served(V4), *served(V6))
    flows = [*ground.connect(V4, 40), *ground.connect(V6, 20)]
    before = [flow.server() for flow in flows]
    for web, vip in ((WEB4, V4), (WEB6, V6)):
        ground.make(change(VipKey(vip, web["web-1"]), BackendEntry(0), BackendEntry(100)))
        ground.make(change(VipKey(vip, web["web-2"]), BackendEntry(7), BackendEntry(100)))
        ground.make(change(VipKey(vip), VipSettings(sticky=True), VipSettings()))
    assert [flow.server() for flow in flows] == before


def test_B19_connections_survive_the_loss_and_the_return_of_the_whole_table(ground: Ground) -> None:
    ground.make(*served())
    flows = ground.connect(V4, 40)
    before = [flow.server() for flow in flows]
    ground.nft("delete", "table", "inet", TABLE)
    ground.make(*served())
    assert [flow.server() for flow in flows] == before


def test_ending_flows_hits_only_the_dead_backend_also_after_the_table_was_lost(ground: Ground) -> None:
    ground.make(*served())
    flows = by_server(ground.connect(V4, 30))
    ground.nft("delete", "table", "inet", TABLE)
    vip, one, two, three = served()
    ground.make(vip, three, two, one)
    ground.make(change(VipKey(V4, WEB4["web-2"]), BackendEntry(0, kill=True), BackendEntry(100)))
    alive = {name: [flow.lives() for flow in mine] for name, mine in flows.items()}
    assert alive == {name: [name != "web-2"] * len(mine) for name, mine in flows.items()}


def test_no_vip_waits_until_the_flows_of_another_have_been_ended(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.make(*served(V4), *served(V6))
    ends, seen = NftConnection.end_flows, list[str]()

    def watched(kernel: NftConnection, mark: int) -> None:
        seen.append(ground.nft("list", "map", "inet", TABLE, "backend6-port"))
        ends(kernel, mark)

    monkeypatch.setattr(NftConnection, "end_flows", watched)
    ground.make(
        change(VipKey(V4, WEB4["web-1"]), BackendEntry(0, kill=True), BackendEntry(100)),
        change(VipKey(V6, WEB6["web-1"]), BackendEntry(0, kill=True), BackendEntry(100)),
    )
    assert len(seen) == 2
    assert "weight 0" in seen[0]


def test_flows_go_on_while_a_vip_without_weight_refuses_new_ones(ground: Ground) -> None:
    ground.make(*served())
    flows = ground.connect(V4, 10)
    ground.make(*(change(VipKey(V4, one), BackendEntry(0), BackendEntry(100)) for one in WEB4.values()))
    with pytest.raises(ConnectionRefusedError):
        ground.connect(V4)
    assert all(flow.lives() for flow in flows)


def only_with_a_new_weight(turn: VipUpdate, backend: BackendId, new: BackendEntry) -> str | None:
    if new.kill and turn.entries.get(backend, BackendEntry(-1)).weight != new.weight:
        turn.ended.add(backend)
    turn.entries[backend] = new
    return None


@fault(
    "B6",
    without="holdfast.balancer.dataplane.nftables.vip_update:VipUpdate._take_entry",
    by=f"{__name__}:only_with_a_new_weight",
    sees=(AssertionError, r'not any\(flow.lives\(\) for flow in flows\["web-1"\]\)'),
)
def test_B6_flows_of_a_backend_that_is_at_zero_already_are_ended_when_that_is_asked(ground: Ground) -> None:
    ground.make(*served())
    flows = by_server(ground.connect(V4, 40))
    ground.make(change(VipKey(V4, WEB4["web-1"]), BackendEntry(0), BackendEntry(100)))
    assert all(flow.lives() for flow in flows["web-1"])
    ground.make(change(VipKey(V4, WEB4["web-1"]), BackendEntry(0, kill=True), BackendEntry(0)))
    assert not any(flow.lives() for flow in flows["web-1"])
    assert all(flow.lives() for name in ("web-2", "web-3") for flow in flows[name])


def test_B6_an_end_of_flows_that_was_interrupted_is_not_taken_for_done(ground: Ground) -> None:
    class Interrupted(Exception):
        pass

    def cut(_mark: int) -> None:
        raise Interrupted

    ground.make(*served())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NftConnection, "end_flows", lambda _kernel, mark: cut(mark))
        with pytest.raises(Interrupted):
            ground.make(change(VipKey(V4, WEB4["web-1"]), BackendEntry(0, kill=True), BackendEntry(100)))
        with pytest.raises(Interrupted):
            ground.make(change(VipKey(V4, WEB4["web-2"]), None, BackendEntry(100)))
    ground.restart()
    found = ground.read()
    assert found[VipKey(V4, WEB4["web-1"])] == BackendEntry(0)
    assert VipKey(V4, WEB4["web-2"]) in found


def buckets(ground: Ground, vip: Vip) -> list[str]:
    """Per bucket the backend, as the kernel has it."""
    entries = [key for key in ground.read() if key.vip == vip and key.backend.port]
    names = {mark_of(key, ()): str(key) for key in entries}

    async def look(plane: NftablesDataplane) -> np.ndarray[Any, Any]:
        kernel = NftConnection(ground.shape.table)
        try:
            return elements.buckets(kernel.elements(buckets_of(vip, SIZE)), SIZE)
        finally:
            kernel.close()

    return [names[mark] for mark in ground.do(look).tolist()]


@fault(
    "B2",
    without="holdfast.balancer.maglev.table:_in_order",
    by="tests.balancer.maglev.test_table:as_they_come",
    sees=(AssertionError, r"len\(found\) == 1"),
)
def test_B2_the_kernel_has_the_same_table_whatever_the_order_of_calls(ground: Ground) -> None:
    found = set()
    for order in permutations(served()[1:]):
        ground.make(served()[0], *order)
        found.add(tuple(buckets(ground, V4)))
        ground.make(change(VipKey(V4), None))
    assert len(found) == 1


@fault(
    "B13",
    without="holdfast.balancer.maglev.table:walk",
    by="tests.balancer.maglev.test_table:folded",
    sees=(AssertionError, r"same < 0.4 \* SIZE"),
)
def test_B13_backends_whose_addresses_fold_to_the_same_do_not_trade_places(ground: Ground) -> None:
    one, other = backend("2001:db8::1", 80), backend("0:1::2001:db8", 80)
    third = backend("2001:db8::9", 80)
    ground.make(
        change(VipKey(V6), VipSettings()), *(change(VipKey(V6, each), BackendEntry(100)) for each in (one, third))
    )
    with_one = buckets(ground, V6)
    ground.make(change(VipKey(V6, one), None), change(VipKey(V6, other), BackendEntry(100)))
    with_other = buckets(ground, V6)
    same = sum(
        str(VipKey(V6, one)) == a and str(VipKey(V6, other)) == b for a, b in zip(with_one, with_other, strict=True)
    )
    assert same < 0.4 * SIZE


def any_family(turn: VipUpdate, backend: BackendId, new: BackendEntry) -> str | None:
    turn.entries[backend] = new
    return None


@fault(
    "B9",
    without="holdfast.balancer.dataplane.nftables.vip_update:VipUpdate._take_entry",
    by=f"{__name__}:any_family",
    sees=(ConnectionRefusedError, r"\[Errno \d+\] Connection refused"),
)
def test_B9_a_backend_of_the_other_family_is_refused_and_its_vip_serves_on(ground: Ground) -> None:
    ground.make(*served())
    stranger = change(VipKey(V4, WEB6["web-3"]), BackendEntry(100))
    (said,) = ground.do(lambda plane: plane.apply([stranger]))
    assert all(flow.lives() for flow in ground.connect(V4, 40))
    assert said is not None
    assert "not of the address family" in said


def test_B9_a_vip_that_moves_to_the_other_family_leaves_nothing_behind(ground: Ground) -> None:
    ground.make(*served(V4))
    ground.make(change(VipKey(V4), None, VipSettings()), *served(V6))
    assert is_served(ground, V6)
    text = ground.nft("list", "table", "inet", TABLE)
    assert "192.0.2.1" not in text
    assert {key.vip for key in ground.read()} == {V6}


def flushing_all(shape: TableShape) -> str:
    return "flush ruleset\n" + FRAME(shape)


FRAME = structure.frame


@fault(
    "B18",
    without="holdfast.balancer.dataplane.nftables.ruleset:frame",
    by=f"{__name__}:flushing_all",
    sees=(AssertionError, '"table inet firewall" in tables'),
)
def test_B18_foreign_tables_stay_as_they_are(ground: Ground) -> None:
    ground.nft(FOREIGN)
    before = [ground.nft("list", "table", *name.split()) for name in ("inet firewall", "ip nat")]
    try:
        ground.make(*served(V4), *served(V6))
        ground.make(change(VipKey(V4, WEB4["web-1"]), BackendEntry(0, kill=True), BackendEntry(100)))
        ground.make(change(VipKey(V4), None), change(VipKey(V6), None))
        tables = ground.nft("list", "tables")
        assert "table inet firewall" in tables
        assert [ground.nft("list", "table", *name.split()) for name in ("inet firewall", "ip nat")] == before
    finally:
        ground.nft("flush", "ruleset")


def nobody(_kernel: NftConnection) -> None:
    return None


@fault(
    "B18",
    without="holdfast.balancer.dataplane.nftables.connection:NftConnection.owner",
    by=f"{__name__}:nobody",
    sees=(pytest.fail.Exception, "DID NOT RAISE Away"),
)
def test_B18_a_table_of_another_program_with_our_name_is_not_touched(ground: Ground) -> None:
    hook = "type nat hook prerouting priority -100; policy accept;"
    ground.nft(f"table inet {TABLE} {{ chain prerouting {{ {hook} ip daddr 10.9.9.9 accept; }}; }}")
    before = ground.nft("list", "ruleset")
    try:
        with pytest.raises(Away, match="the table inet holdfast belongs to another program: choose another"):
            ground.make(*served())
        assert ground.nft("list", "ruleset") == before
    finally:
        ground.nft("delete", "table", "inet", TABLE)


def test_a_restart_reads_everything_and_writes_nothing(ground: Ground) -> None:
    ground.make(*served(V4), *served(V6, sticky=True))
    ground.make(change(VipKey(V4, WEB4["web-1"]), BackendEntry(0, kill=True), BackendEntry(100)))
    before, generation = ground.read(), ground.nft("-j", "list", "ruleset")
    ground.restart()
    assert ground.read() == before
    ground.make(*(change(key, value) for key, value in sorted(before.items(), key=lambda pair: pair[0])))
    assert ground.plane.writes == 0
    assert ground.nft("-j", "list", "ruleset") == generation


def test_a_table_of_another_size_takes_over_without_a_gap(ground: Ground) -> None:
    ground.make(*served())
    flows = ground.connect(V4, 10)
    before = ground.read()
    ground.restart()
    assert ground.read() == before
    ground.make(change(VipKey(V4), VipSettings(table_size=1021), VipSettings()))
    assert ground.read() == {**before, VipKey(V4): VipSettings(table_size=1021)}
    assert is_served(ground, size=1021)
    assert all(flow.lives() for flow in flows)
    assert f"-{SIZE}" not in ground.nft("list", "table", "inet", TABLE)


def test_a_table_of_an_older_version_says_its_size_by_its_map(ground: Ground) -> None:
    ground.make(change(VipKey(V4), VipSettings(table_size=4093)), *served()[1:])
    before = ground.read()
    chain, key = "goto vip-192.0.2.1-tcp-80", "192.0.2.1 . tcp . 80"
    ground.nft(
        f"delete element inet {TABLE} vip4-port {{ {key} }}; add element inet {TABLE} vip4-port {{ {key} : {chain} }}"
    )
    ground.restart()
    assert ground.read() == before


@pytest.mark.parametrize(
    "tampering",
    [
        ("delete", "table", "inet", TABLE),
        ("flush", "table", "inet", TABLE),
        ("flush", "chain", "inet", TABLE, "prerouting"),
        ("flush", "chain", "inet", TABLE, "vip-192.0.2.1-tcp-80"),
        ("flush", "map", "inet", TABLE, "vip4-port"),
        ("flush", "map", "inet", TABLE, "backend4-port"),
        ("flush", "set", "inet", TABLE, "opened"),
        ("flush", "ruleset"),
    ],
    ids=" ".join,
)
def test_changes_of_our_table_by_others_are_noticed_and_repaired(ground: Ground, tampering: tuple[str, ...]) -> None:
    ground.make(*served())
    before = ground.read()

    async def noticed(plane: NftablesDataplane) -> None:
        watching = asyncio.create_task(plane.lost())
        await asyncio.to_thread(ground.nft, *tampering)
        async with asyncio.timeout(60):
            await watching
        assert await plane.read() != before
        await made(plane, *served())
        assert await plane.read() == before

    ground.do(noticed)
    assert is_served(ground)


def test_changed_buckets_are_noticed_by_a_full_read_and_repaired(ground: Ground) -> None:
    ground.make(*served())
    before = ground.read()
    ground.nft("flush", "map", "inet", TABLE, buckets_of(V4, SIZE))
    ground.nft("add", "element", "inet", TABLE, buckets_of(V4, SIZE), '{ 0x5 comment "mine" : 0x48000001 }')
    assert ground.read() == {**before, VipKey(V4): VipSettings(damaged=True)}
    ground.make(*served())
    assert ground.read() == before
    assert is_served(ground)


def test_elements_that_do_not_fit_are_removed_with_the_next_change(ground: Ground) -> None:
    ground.make(*served())
    before = ground.read()
    ground.nft("add", "element", "inet", TABLE, "backend4-address", "{ 0x77 : 10.9.9.9 }")
    ground.nft("add", "element", "inet", TABLE, "vip4-address", "{ 192.0.2.77 : goto refuse }")
    assert ground.read() == before
    ground.make(change(VipKey(V4, WEB4["web-1"]), BackendEntry(50), BackendEntry(100)))
    text = ground.nft("list", "table", "inet", TABLE)
    assert "10.9.9.9" not in text
    assert "192.0.2.77" not in text


def test_changes_in_foreign_tables_cost_a_read_and_no_write(ground: Ground) -> None:
    ground.make(*served())
    before, writes = ground.read(), ground.plane.writes
    ground.nft("add", "table", "inet", "other")
    assert ground.read() == before
    assert ground.plane.writes == writes
    assert not ground.do(lambda plane: plane._was_disturbed())
    ground.nft("delete", "table", "inet", "other")
