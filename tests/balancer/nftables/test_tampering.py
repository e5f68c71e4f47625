"""Somebody else in our table: chains of theirs, buckets that they changed while others keep writing."""

from __future__ import annotations

import asyncio

from holdfast.balancer.dataplane.nftables import Nftables
from holdfast.balancer.dataplane.nftables.layout import buckets_of
from holdfast.balancer.vip import Entry, Key, Settings, Value, Vip
from holdfast.reconcile import Change
from tests.balancer.conformance import change, made
from tests.balancer.nftables.traffic import SIZE, TABLE, V4, WEB4, Ground, is_served


def served(vip: Vip = V4) -> list[Change[Key, Value]]:
    return [change(Key(vip), Settings()), *(change(Key(vip, one), Entry(100)) for one in WEB4.values())]


def test_a_chain_of_somebody_in_our_table_goes_and_then_there_is_rest(ground: Ground) -> None:
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


def test_a_chain_of_somebody_that_leads_to_a_vip_does_not_keep_the_vip_from_going(ground: Ground) -> None:
    ground.make(*served())
    ground.nft(f"add chain inet {TABLE} zz; add rule inet {TABLE} zz goto vip-192.0.2.1-tcp-80")
    ground.make(change(Key(V4), None))
    assert ground.read() == {}
    assert "vip-" not in ground.nft("list", "table", "inet", TABLE)


def test_every_table_of_buckets_is_compared_also_where_others_write_all_the_time(ground: Ground) -> None:
    vips = [Vip.of(f"192.0.2.{number}", "tcp", 80) for number in range(1, 11)]
    ground.make(*(one for vip in vips for one in served(vip)))
    last = vips[-1]

    async def story(plane: Nftables) -> None:
        await plane.read()
        await asyncio.to_thread(ground.nft, "flush", "map", "inet", TABLE, buckets_of(last, SIZE))
        for _ in range(6):
            if Key(last) not in await plane.read():
                break
            await asyncio.to_thread(ground.nft, "add table inet other; delete table inet other")
        else:
            raise AssertionError("the emptied buckets were never noticed")
        await made(plane, *served(last))
        assert Key(last) in await plane.read()

    ground.do(story)
