"""Clients through VIPs on the real kernel: which backend answers, stays, or refuses."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.balancer.dataplane.nftables import TableShape
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings, backend
from holdfast.reconcile import Change
from holdfast.testing.real.anycast import SERVERS, AnycastSite, address
from tests.balancer.dataplane.conformance import change
from tests.balancer.dataplane.nftables.harness import (
    PORT,
    TABLE,
    V4,
    V6,
    WEB4,
    WEB6,
    Ground,
    by_server,
    is_pinged,
    is_served,
    predicted,
    spread,
)

U4, U6 = Vip.of("192.0.2.1", "udp", 53), Vip.of("2001:db8::1", "udp", 53)


def served(vip: Vip, *, sticky: bool = False, weight: int = 100) -> list[Change[VipKey, Value]]:
    """All three servers behind it."""
    web = WEB4 if vip.family == 4 else WEB6
    return [
        change(VipKey(vip), VipSettings(sticky)),
        *(change(VipKey(vip, one), BackendEntry(weight)) for one in web.values()),
    ]


@pytest.mark.parametrize("vip", [V4, V6, U4, U6], ids=str)
def test_every_flow_goes_where_its_hash_says(ground: Ground, vip: Vip) -> None:
    ground.make(*served(vip))
    assert is_served(ground, vip)
    assert set(spread(ground.connect(vip, 60))) == set(SERVERS)


@pytest.mark.parametrize("vip", [V4, V6], ids=str)
def test_all_flows_of_a_client_go_to_one_backend_of_a_sticky_vip(ground: Ground, vip: Vip) -> None:
    ground.make(*served(vip, sticky=True))
    flows = ground.connect(vip, 20)
    weights = dict.fromkeys((WEB4 if vip.family == 4 else WEB6).values(), 100)
    assert {flow.server() for flow in flows} == {predicted(flows[0], weights, sticky=True)}


def test_new_flows_are_spread_by_weight(ground: Ground) -> None:
    web = list(WEB4.values())
    weights = dict(zip(web, (100, 25, 0), strict=True))
    ground.make(
        change(VipKey(V4), VipSettings()),
        *(change(VipKey(V4, one), BackendEntry(weight)) for one, weight in weights.items()),
    )
    flows = ground.connect(V4, 200)
    found = spread(flows)
    assert found == Counter(predicted(flow, weights) for flow in flows)
    assert set(found) == {"web-1", "web-2"}
    assert found["web-1"] > 2 * found["web-2"]


def test_a_vip_without_backends_answers_with_a_reset(ground: Ground) -> None:
    ground.make(*served(V4, weight=0), *served(V6, weight=0))
    for vip in (V4, V6):
        with pytest.raises(ConnectionRefusedError):
            ground.connect(vip)


@pytest.mark.parametrize("vip", [U4, U6], ids=str)
def test_a_vip_without_backends_is_unreachable_by_datagrams(ground: Ground, vip: Vip) -> None:
    ground.make(*served(vip, weight=0))
    (flow,) = ground.connect(vip)
    with pytest.raises(ConnectionRefusedError):
        flow.asked()


def test_a_vip_that_is_gone_is_no_longer_answered_for(ground: Ground) -> None:
    ground.make(*served(V4))
    (flow,) = ground.connect(V4)
    assert flow.lives()
    ground.make(change(VipKey(V4), None))
    flow.socket.settimeout(0.5)  # nobody answers, however long one waits
    assert not flow.lives()
    assert "192.0.2.1" not in ground.nft("list", "table", "inet", ground.shape.table)


def test_a_backend_without_a_port_gets_the_port_that_the_client_used(ground: Ground) -> None:
    wide = Vip.of("192.0.2.7", "tcp", 0)
    ground.make(
        change(VipKey(wide), VipSettings()), change(VipKey(wide, backend(address("web-2"), 0)), BackendEntry(100))
    )
    for port in (PORT, PORT + 1):
        assert [flow.server() for flow in ground.connect(wide, 3, port=port)] == ["web-2"] * 3


def test_the_narrower_vip_wins(ground: Ground) -> None:
    one, two, three = (backend(address(name), 0) for name in SERVERS)
    vips = {
        Vip.of("192.0.2.8", "tcp", PORT): one,
        Vip.of("192.0.2.8", "tcp", 0): two,
        Vip.of("192.0.2.8", "any", 0): three,
    }
    for vip, behind in vips.items():
        ground.make(change(VipKey(vip), VipSettings()), change(VipKey(vip, behind), BackendEntry(100)))
    narrow, wide, _ = vips
    assert ground.connect(narrow)[0].server() == "web-1"
    assert ground.connect(wide, port=PORT + 1)[0].server() == "web-2"
    assert ground.connect(Vip.of("192.0.2.8", "udp", PORT))[0].server() == "web-3"


@pytest.mark.parametrize("family", [4, 6])
def test_a_vip_for_all_protocols_is_also_answered_when_it_is_pinged(ground: Ground, family: int) -> None:
    host = "192.0.2.9" if family == 4 else "2001:db8::9"
    vip = Vip.of(host, "any", 0)
    ground.make(
        change(VipKey(vip), VipSettings()),
        change(VipKey(vip, backend(address("web-1", family), PORT)), BackendEntry(100)),
    )
    assert is_pinged(host, ground.site.client)
    assert ground.connect(vip, port=PORT)[0].server() == "web-1"


@pytest.mark.parametrize("vip", [V4, V6], ids=str)
def test_a_client_on_the_balancer_itself_is_served(ground: Ground, vip: Vip) -> None:
    ground.make(*served(vip))
    host = str(vip).rpartition(":")[0].strip("[]")
    ground.namespace.run("ip", "route", "replace", host, "dev", "veth0")
    flows = ground.connect(vip, 60, of=ground.namespace)
    assert set(spread(flows)) == set(SERVERS)


@pytest.mark.parametrize("vip", [V4, V6], ids=str)
def test_a_client_on_a_balancer_that_has_the_vip_for_its_own_address_is_served(ground: Ground, vip: Vip) -> None:
    own = str(vip).rpartition(":")[0].strip("[]")
    ground.make(*served(vip))
    with ground.having(own):
        (flow,) = ground.connect(vip, of=ground.namespace)
        assert flow.source[0] == own
        assert flow.lives()
        assert ground.connect(vip)[0].lives(), "and clients elsewhere"


def test_servers_see_the_client(ground: Ground) -> None:
    ground.make(*served(V4))
    (flow,) = ground.connect(V4)
    assert flow.asked().split()[1] == flow.source[0]


def test_flows_are_counted_by_backend_at_their_first_packet(ground: Ground) -> None:
    ground.make(*served(V4))
    flows = by_server(ground.connect(V4, 30))
    counted = ground.do(lambda plane: plane.counters())
    for name, mine in flows.items():
        found = counted[VipKey(V4, WEB4[name])]
        assert (found.flows, found.opened, found.packets, found.bytes) == (len(mine), len(mine), 0, 0)
    assert "counted-in" not in ground.nft("list", "table", "inet", TABLE)


def test_packets_and_bytes_are_counted_where_that_is_asked_for(site: AnycastSite) -> None:
    """A table that has counted flows goes over to packets, and back; flows stay with their servers."""
    grounds = [Ground(site, TableShape(TABLE)), Ground(site, TableShape(TABLE, packets=True))]
    plain, counting = grounds
    try:
        plain.make(*served(V4))
        (early,) = plain.connect(V4)
        held = counting.read()
        counting.make(*(change(key, value) for key, value in held.items()))
        assert {name for name in ("opened", "traffic") if f"set {name} " in counting.nft("list", "sets")} == {"traffic"}
        flows = by_server(counting.connect(V4, 30))
        counted = counting.do(lambda plane: plane.counters())
        for name, mine in flows.items():
            found = counted[VipKey(V4, WEB4[name])]
            assert found.packets >= 5 * len(mine)
            assert found.bytes > 52 * found.packets
            assert found.opened == 0
        assert early.server() in SERVERS
        held = plain.read()
        plain.make(*(change(key, value) for key, value in held.items()))
        assert {name for name in ("opened", "traffic") if f"set {name} " in plain.nft("list", "sets")} == {"opened"}
        assert "counted-in" not in plain.nft("list", "table", "inet", TABLE)
        assert is_served(plain, V4)
    finally:
        for ground in grounds:
            ground.close()


def test_with_snat_servers_see_the_balancer(site: AnycastSite) -> None:
    ground = Ground(site, TableShape(TABLE, snat=True))
    try:
        ground.make(*served(V4), *served(V6))
        for vip in (V4, V6):
            (flow,) = ground.connect(vip)
            assert flow.asked().split()[1] != flow.source[0]
    finally:
        ground.close()
