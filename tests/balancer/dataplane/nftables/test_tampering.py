"""Somebody else in our table: chains of theirs, buckets that they changed while others keep writing, a table that was
gone for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape
from holdfast.balancer.dataplane.nftables.layout import buckets_of
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings
from holdfast.reconcile import Change
from tests.balancer.dataplane.conformance import change, made
from tests.balancer.dataplane.nftables.harness import PORT, SIZE, TABLE, V4, WEB4, WEB6, Ground, is_served
from tests.balancer.dataplane.nftables.reconciling import comes_true, keeping, site


def served(vip: Vip = V4) -> list[Change[VipKey, Value]]:
    return [change(VipKey(vip), VipSettings()), *(change(VipKey(vip, one), BackendEntry(100)) for one in WEB4.values())]


def test_a_foreign_chain_in_our_table_is_removed_once(ground: Ground) -> None:
    ground.make(*served())
    before = ground.read()
    hooked = "{ type nat hook prerouting priority -99; }"
    ground.nft(f"add chain inet {TABLE} mine {hooked}; add rule inet {TABLE} mine counter")
    ground.make(*served())
    writes = ground.plane.writes
    assert ground.read() == before
    assert "mine" not in ground.nft("list", "table", "inet", TABLE)
    ground.make(*served())
    assert ground.plane.writes == writes
    assert is_served(ground)


def test_a_foreign_chain_that_refers_to_a_vip_does_not_prevent_its_deletion(ground: Ground) -> None:
    ground.make(*served())
    ground.nft(f"add chain inet {TABLE} zz; add rule inet {TABLE} zz goto vip-192.0.2.1-tcp-80")
    ground.make(change(VipKey(V4), None))
    assert ground.read() == {}
    assert "vip-" not in ground.nft("list", "table", "inet", TABLE)


@pytest.mark.parametrize("size", [SIZE, 1021])
def test_a_vip_that_is_damaged_and_no_longer_wanted_is_removed(ground: Ground, tmp_path: Path, size: int) -> None:
    """Also if the size of another VIP was changed before the balancer was started again."""
    unwanted = Vip.of("192.0.2.9", "tcp", 80)
    ground.make(*served(), *served(unwanted))
    ground.nft("flush", "set", "inet", TABLE, "opened")
    ground.plane.close()
    ground.plane = NftablesDataplane(TableShape(TABLE))

    async def story(plane: NftablesDataplane) -> None:
        wanted = {one.key: one.new.value for one in served() if one.new} | {VipKey(V4): VipSettings(table_size=size)}
        async with keeping(site(extra=f", table-size: {size}"), plane, tmp_path) as (reconciler, _):
            await comes_true(lambda: reconciler.target.held == wanted)

    ground.do(story)
    assert "192.0.2.9" not in ground.nft("list", "table", "inet", TABLE)
    assert is_served(ground, size=size)


def test_every_table_of_buckets_is_compared_also_where_others_write_all_the_time(ground: Ground) -> None:
    vips = [Vip.of(f"192.0.2.{number}", "tcp", 80) for number in range(1, 11)]
    ground.make(*(one for vip in vips for one in served(vip)))
    last = vips[-1]

    async def story(plane: NftablesDataplane) -> None:
        await plane.read()
        await asyncio.to_thread(ground.nft, "flush", "map", "inet", TABLE, buckets_of(last, SIZE))
        for _ in range(6):
            if (await plane.read())[VipKey(last)] == VipSettings(damaged=True):
                break
            await asyncio.to_thread(ground.nft, "add table inet other; delete table inet other")
        else:
            raise AssertionError("the emptied buckets were never noticed")
        await made(plane, *served(last))
        assert (await plane.read())[VipKey(last)] == VipSettings()

    ground.do(story)


@pytest.mark.parametrize(
    ("vip", "servers"),
    [
        (Vip.of("192.0.2.5", "udp", 80), WEB4),
        (Vip.of("2001:db8::5", "udp", 0), WEB6),
        (Vip.of("192.0.2.5", "any", 0), WEB4),
    ],
    ids=["udp", "all ports", "all protocols"],
)
def test_a_client_that_began_while_the_table_was_gone_is_served_when_it_is_back(
    ground: Ground, vip: Vip, servers: dict[str, BackendId]
) -> None:
    ground.nft(
        "table inet firewall { chain input { type filter hook input priority 0; ct state established accept; }; }"
    )
    announced = str(vip).rpartition(":")[0].strip("[]")
    wanted = [
        change(VipKey(vip), VipSettings()),
        *(change(VipKey(vip, one), BackendEntry(100)) for one in servers.values()),
    ]
    try:
        with ground.having(announced):
            ground.make(*wanted)
            ground.nft("delete", "table", "inet", TABLE)
            (flow,) = ground.connect(Vip(vip.family, vip.address, 17, vip.port or PORT))
            with pytest.raises(ConnectionRefusedError):
                flow.asked()
            ground.make(*wanted)
            assert flow.server() in servers
    finally:
        ground.nft("delete", "table", "inet", "firewall")


def test_an_answered_flow_is_not_ended_by_a_new_vip(ground: Ground) -> None:
    ground.make(*served())
    (flow,) = ground.connect(Vip(4, WEB4["web-1"].address, 17, PORT))
    assert flow.server() == "web-1"
    taken = Vip(4, WEB4["web-1"].address, 17, PORT)
    ground.make(change(VipKey(taken), VipSettings()), change(VipKey(taken, WEB4["web-2"]), BackendEntry(100)))
    assert flow.server() == "web-1"
