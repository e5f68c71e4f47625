"""After a change of `routing` from mesh to bgp: what carries traffic stays until the BGP daemon has its routes."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from pathlib import Path

from holdfast.agent.claims import Claim, ClaimKey, LocalRoute, RemoteRoute, RoutingRule, Shape, route, rule
from holdfast.agent.desired.peers import Routing
from holdfast.agent.gates.handover import MAIN, HandoverGate
from holdfast.model.base.time import Instant
from holdfast.reconcile import Away, BrakeLimits, Change, Closed, Op, Owned
from tests.agent.harness import ME, HostHarness
from tests.agent.test_reconciler import P1, P2, on_a_site

PEERS = 40


def judged(key: ClaimKey, shape: Shape, *, missing: bool = False, **tables: Set[ClaimKey]) -> Closed | None:
    """Judge a delete where the main table and table 7500 have these routes."""
    known = {MAIN: tables.get("main", frozenset()), 7500: tables.get("own", frozenset())}
    change = Change(Op.DELETE, key, Owned(Claim(shape, missing=missing), "region", 1), None)
    return HandoverGate(lambda table: known[table]).judge(change, {}, 1, Instant(1))


def test_a_route_of_a_peer_goes_once_the_main_table_has_one() -> None:
    closed = judged(P1, RemoteRoute("10.99.0.1"), main={P2})
    assert closed is not None
    assert (closed.gate, closed.detail) == ("handover", "route 10.65.0.1/32")
    assert judged(P1, RemoteRoute("10.99.0.1"), main={P1}) is None
    assert judged(P1, RemoteRoute("10.99.0.1"), missing=True) is None
    assert judged(P1, LocalRoute("tap1")) is None


def test_a_rule_goes_once_the_main_table_has_every_route_of_its_table() -> None:
    closed = judged(rule(4, 7500), RoutingRule(20_000), own={P1, P2, route("fd65::1/128")}, main={P1})
    assert closed is not None
    assert closed.detail == "1 prefixes of table 7500"
    assert judged(rule(4, 7500), RoutingRule(20_000), own={P1, route("fd65::1/128")}, main={P1}) is None


def test_while_the_kernel_cannot_be_read_nothing_goes() -> None:
    def away(_table: int) -> Set[ClaimKey]:
        raise Away("the kernel", "busy")

    for key, shape in ((P1, RemoteRoute("10.99.0.1")), (rule(4, 7500), RoutingRule(20_000))):
        change = Change(Op.DELETE, key, Owned(Claim(shape), "region", 1), None)
        assert HandoverGate(away).judge(change, {}, 1, Instant(1)) is not None


def test_peers_stay_until_their_routes_are_taken_over_and_no_brake_holds_them_then(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        prefixes = [f"10.65.1.{number}/32" for number in range(PEERS)]
        fleet.write(fleet.joins(ME, 200), fleet.runs("w", ME, "10.65.0.1/32"))
        fleet.write(*(fleet.joins(f"h{number}", number) for number in range(PEERS)))
        fleet.write(*(fleet.runs(f"v{number}", f"h{number}", one) for number, one in enumerate(prefixes)))
        site.start()
        await site.settled()
        before = dict(site.shapes)
        assert len(before) == 1 + 5 * PEERS
        site.node.kill()
        site.routing, site.arrival_metric = Routing.BGP, 4096
        site.start()
        await asyncio.sleep(60)
        tunnels = {key for key in before if key.text.startswith("10.99.") and key.kind is P1.kind}
        assert site.shapes == {key: shape for key, shape in before.items() if key not in tunnels}
        taken, kept = prefixes[1:], prefixes[0]
        site.kernel.tables[MAIN] = {route(one) for one in taken}
        await asyncio.sleep(60)
        assert {key for key in site.shapes if key.kind is P1.kind} == {P1, route(kept)}
        assert len(site.shapes) == 1 + 4
        site.kernel.tables[MAIN] = {route(one) for one in prefixes}
        await asyncio.sleep(60)
        assert site.shapes == {P1: LocalRoute("tap-w")}

    on_a_site(scene, tmp_path, limits=BrakeLimits())
