"""Rows of the fault matrix on VPP: a whole balancer, its real API client, and a VPP in this process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from holdfast.balancer.dataplane.vpp.connection import VppRequest
from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane
from holdfast.balancer.target import ValueChange
from holdfast.balancer.vip import BackendEntry, Objects, Vip
from holdfast.config import ConfigFile, Loaded, resolve
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.control.intent import IntentKind
from holdfast.testing.fakes.vpp import FakeServer, FakeVip
from holdfast.testing.fault import fault
from tests.balancer.dataplane.nftables.reconciling import comes_true, compared
from tests.balancer.dataplane.vpp.site import PLACE, VppSite, config, on_vpp, server
from tests.balancer.harness import configuration
from tests.balancer.test_reconciler import intent


def of_a_hash_map(changes: Iterable[ValueChange]) -> Sequence[ValueChange]:
    return random.sample(list(changes), len(list(changes)))


@fault(
    "B2",
    without="holdfast.balancer.target:in_call_order",
    by=f"{__name__}:of_a_hash_map",
    sees=(AssertionError, r"_shown\(sent\[0\]\) == _shown\(sent\[1\]\)"),
)
def test_B2_two_balancers_with_shuffled_configurations_send_identical_calls(tmp_path: Path) -> None:
    sent = []
    for seed in (1, 2):
        servers, vips = list(range(1, 13)), [1, 2, 10]
        random.Random(seed).shuffle(servers)
        random.Random(seed).shuffle(vips)

        async def story(site: VppSite) -> None:
            await comes_true(lambda: all(len(site.weights(vip)) == 12 for vip in (1, 2, 10)))

        folder = tmp_path / str(seed)
        folder.mkdir()
        sent.append(on_vpp(config([servers], vips=vips), folder, story).calls)
    assert len(sent[0]) == 39
    assert _shown(sent[0]) == _shown(sent[1])


def _shown(calls: Sequence[tuple[str, dict[str, object]]]) -> list[tuple[str, dict[str, str]]]:
    return [(name, {key: str(value) for key, value in fields.items() if key != "context"}) for name, fields in calls]


@fault(
    "B6",
    without="holdfast.balancer.reconciler:same",
    by="tests.balancer.test_reconciler:weight_alone",
    sees=(AssertionError, r"site.vpp.flushed == \[\(PLACE, server\(1\)\)\]"),
)
def test_B6_a_server_at_zero_is_flushed_when_it_is_disabled(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.is_served_by(1, 2))
        site.apply_intents(intent(IntentKind.PAUSE, "b1"))
        await comes_true(lambda: site.weights() == {server(1): 0, server(2): 100})
        assert site.vpp.flushed == []
        site.apply_intents(intent(IntentKind.DISABLE, "b1"))
        await compared(site.reconciler)
        assert site.vpp.flushed == [(PLACE, server(1))]

    on_vpp(config([[1, 2]]), tmp_path, story)


@fault(
    "B9",
    without="holdfast.balancer.target:VipTarget._is_live",
    by="tests.balancer.test_reconciler:in_place",
    sees=(AssertionError, r'site.vpp.vips\[PLACE\].fields\["src_ip_sticky"\] is True'),
)
def test_B9_a_vip_that_vpp_cannot_change_is_rebuilt(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.is_served_by(1, 2))
        site.reload(config([[1, 2]], extra=", src-ip-sticky: true"))
        await compared(site.reconciler)
        assert site.vpp.vips[PLACE].fields["src_ip_sticky"] is True
        assert site.is_served_by(1, 2)

    on_vpp(config([[1, 2]]), tmp_path, story)


def as_configured(_vip: Vip, encap: int) -> str:
    return "l3dsr" if encap == 2 else "gre"


@pytest.mark.parametrize("held", [["2001:db8::a"], []])
@fault(
    "B9",
    without="holdfast.balancer.dataplane.vpp.messages:_tunnel",
    by=f"{__name__}:as_configured",
    sees=(AssertionError, r"site.vpp.vips\[PLACE\].encap == 0"),
)
def test_B9_a_vip_that_is_held_for_the_other_family_is_rebuilt(tmp_path: Path, held: Sequence[str]) -> None:
    fields = {"pfx": PLACE[0], "encap": 1, "dscp": 0, "new_flows_table_length": 4096}

    async def story(site: VppSite) -> None:
        await site.healthy()
        await compared(site.reconciler)
        assert site.vpp.vips[PLACE].encap == 0
        assert site.is_served_by(1, 2)

    holding = {PLACE: FakeVip(fields, {address: FakeServer(100) for address in held})}
    on_vpp(config([[1, 2]]), tmp_path, story, holding)


@fault(
    "B9",
    without="holdfast.balancer.dataplane.vpp.rules:refusal_of_held",
    sees=(AssertionError, r"site.vpp.calls == \[\]"),
)
def test_B9_a_vip_that_is_held_with_nat_is_left_alone_and_the_reason_told(tmp_path: Path) -> None:
    """Two that share a server: a real VPP aborts a minute after both were deleted."""

    async def story(site: VppSite) -> None:
        await site.healthy()
        await compared(site.reconciler)
        assert site.vpp.calls == []
        failed = [str(one.error) for one in site.reconciler.loop.ledger]
        assert len(failed) == 4
        assert all(one.startswith("VPP holds this VIP with NAT") for one in failed)

    fields = {"encap": 3, "dscp": 0, "new_flows_table_length": 4096}
    holding = {
        (address, 6, 80): FakeVip(fields | {"pfx": address}, {server(1): FakeServer(100)})
        for address in ("192.0.2.1/32", "192.0.2.2/32")
    }
    on_vpp(config([[1, 2]], vips=(1, 2)), tmp_path, story, holding)


def tunnelled(vips: Sequence[int], extra: str) -> BalancerSettings:
    """Frontends at ports of one address."""
    text = [f"f{port}: {{address: 192.0.2.1, port: {port}, pools: [{{backends: {{b1: }}}}]{extra}}}" for port in vips]
    lines = ["sync-interval: 1h", "dataplane: {kind: vpp}", "healthchecks: {web: {type: tcp, port: 80, interval: 1s}}"]
    lines += ["backends: {b1: {address: 10.0.0.1, healthcheck: web}}", f"frontends: {{{', '.join(text)}}}"]
    return configuration("\n".join(lines))


def at_its_turn(steps: Sequence[tuple[ValueChange, ValueChange]]) -> Sequence[tuple[ValueChange, ValueChange]]:
    return steps


@fault(
    "B9",
    without="holdfast.balancer.target:deletes_first",
    by=f"{__name__}:at_its_turn",
    sees=(AssertionError, r"site.vpp.refused == \[\]"),
)
def test_B9_the_ports_of_an_address_change_their_encapsulation_together(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await site.settled()
        assert [vip.encap for vip in site.vpp.vips.values()] == [0, 0, 0]
        site.reload(tunnelled((80, 443, 8080), ", encapsulation: l3dsr, dscp: 3"))
        await site.settled()
        assert [vip.encap for vip in site.vpp.vips.values()] == [2, 2, 2]
        assert site.vpp.refused == []
        assert [list(vip.servers) for vip in site.vpp.vips.values()] == [[server(1)]] * 3

    on_vpp(tunnelled((80, 443, 8080), ""), tmp_path, story)


@fault(
    "B9",
    without="holdfast.balancer.reconciler:VipReconciler._compare_vip",
    sees=(AssertionError, r"site.is_served_by\(1, 2\)"),
)
def test_B9_a_vip_whose_rebuild_failed_halfway_gets_its_servers_back(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await site.settled()
        site.vpp.refuses = iter([-73])
        site.reload(config([[1, 2]], extra=", encapsulation: l3dsr, dscp: 3"))
        await site.settled()
        assert site.vpp.vips[PLACE].encap == 2
        assert site.is_served_by(1, 2)
        assert site.vpp.refused == [("lb_add_del_vip_v2", -73)] + [("lb_add_del_as_v2", -6)] * 2

    on_vpp(config([[1, 2]]), tmp_path, story)


def of_those_that_serve(objects: Objects) -> int:
    return sum(value.weight for _, value in objects if isinstance(value, BackendEntry))


@fault(
    "B12",
    without="holdfast.balancer.dataplane.vpp.rules:total_weight",
    by=f"{__name__}:of_those_that_serve",
    sees=(AssertionError, r'\{str\(fields\["as_address"\]\) for name, fields in later if name =='),
)
def test_B12_a_server_that_goes_down_rescales_no_other(tmp_path: Path) -> None:
    """Twenty of weight 100 do not fit into 1,024 buckets, nineteen neither."""

    async def story(site: VppSite) -> None:
        await comes_true(lambda: set(site.weights().values()) == {51} and len(site.weights()) == 20)
        calls = len(site.vpp.calls)
        site.prober.down = {"b7"}
        await comes_true(lambda: site.weights()[server(7)] == 0)
        await compared(site.reconciler)
        later = site.vpp.calls[calls:]
        assert {str(fields["as_address"]) for name, fields in later if name == "lb_as_set_weight"} == {server(7)}

    on_vpp(config([range(1, 21)], table_length=1024), tmp_path, story)


FOLDING = """\
balancer:
  dataplane: {kind: vpp}
  backends:
    one: {address: "2001:db8:0:1::2"}
    two: {address: "2001:db8:0:2::1"}
    other: {address: "2001:db8:0:2::2"}
  frontends:
    www: {address: "2001:db8::80", port: 80, pools: [{backends: {one: , two: , other: }}]}
"""


@fault(
    "B13",
    without="holdfast.config.sections.vpp_limits:folded",
    by=f"{__name__}:unfolded",
    sees=(ValueError, r'\(warning,\) = \[one.sentence for one in loaded.warnings if "VPP'),
)
def test_B13_servers_that_vpp_hashes_alike_are_named(tmp_path: Path) -> None:
    loaded = resolve(ConfigFile("test", FOLDING.encode()), {})
    assert isinstance(loaded, Loaded)
    (warning,) = [one.sentence for one in loaded.warnings if "VPP hashes" in one.sentence]
    assert "one" in warning
    assert "when one of the two is down, the other gets all of its flows" in warning


def unfolded(address: str) -> str:
    return address


async def never(_plane: VppDataplane) -> str:
    await asyncio.Event().wait()
    return ""


@fault(
    "B15",
    without="holdfast.balancer.dataplane.vpp.dataplane:VppDataplane.lost",
    by=f"{__name__}:never",
    sees=(TimeoutError, r"comes_true\(lambda: site.is_served_by\(1, 2\), within=6\)"),
)
def test_B15_a_vpp_that_comes_back_empty_is_programmed_again(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.is_served_by(1, 2))
        await compared(site.reconciler)  # a batch that is under way would be tried again, whoever notices
        site.vpp.die()
        await site.vpp.start()
        await comes_true(lambda: site.is_served_by(1, 2), within=6)

    on_vpp(config([[1, 2]]), tmp_path, story)


@fault(
    "B18",
    without="holdfast.balancer.dataplane.vpp.dataplane:VppDataplane._is_ours",
    returns=True,
    sees=(AssertionError, r'\("198.51.100.9/32", 6, 443\) in site.vpp.vips'),
)
def test_B18_a_vip_of_somebody_else_stays(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.is_served_by(1, 2))
        place = {"pfx": "198.51.100.9/32", "protocol": 6, "port": 443}
        plane = site.reconciler.dataplane
        assert isinstance(plane, VppDataplane)
        await plane._connection.call([VppRequest("lb_add_del_vip_v2", place | {"new_flows_table_length": 1024})])
        await compared(site.reconciler)
        assert ("198.51.100.9/32", 6, 443) in site.vpp.vips

    on_vpp(config([[1, 2]]), tmp_path, story)


@fault(
    "B26",
    without="holdfast.balancer.gates:VipBrake.counts",
    returns=True,
    sees=(TimeoutError, r"comes_true\(lambda: site.is_served_by\(1, 2\), within=6\)"),
)
def test_B26_six_servers_scaled_to_two_leave(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.is_served_by(1, 2, 3, 4, 5, 6))
        site.reload(config([[1, 2]]))
        await comes_true(lambda: site.is_served_by(1, 2), within=6)

    on_vpp(config([[1, 2, 3, 4, 5, 6]]), tmp_path, story)


@fault(
    "B29",
    without="holdfast.balancer.gates:HealthGate._has_request",
    by="tests.balancer.test_routine_work:what_is_lowered_passes",
    sees=(AssertionError, r"site.weights\(\) == \{server\(1\): 0, server\(2\): 0, server\(3\): 100\}"),
)
def test_B29_the_standby_serves_when_primaries_are_disabled_while_the_prober_is_silent(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.weights() == {server(1): 100, server(2): 100, server(3): 0})
        site.prober.silent = True
        await comes_true(lambda: site.reconciler.health.silent_since is not None)
        site.apply_intents(intent(IntentKind.DISABLE, "b1"), intent(IntentKind.DISABLE, "b2"))
        await compared(site.reconciler)
        assert site.weights() == {server(1): 0, server(2): 0, server(3): 100}

    on_vpp(config([[1, 2], [3]]), tmp_path, story)


def test_no_moment_is_without_a_server_when_another_pool_takes_over(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.weights() == {server(1): 100, server(2): 100, server(3): 0})
        calls = len(site.vpp.calls)
        site.apply_intents(intent(IntentKind.DISABLE, "b1"), intent(IntentKind.DISABLE, "b2"))
        await comes_true(lambda: site.weights() == {server(1): 0, server(2): 0, server(3): 100})
        serving = {server(1), server(2)}
        for _, fields in site.vpp.calls[calls:]:
            address = str(fields["as_address"])
            serving = serving | {address} if fields["weight"] else serving - {address}
            assert serving

    on_vpp(config([[1, 2], [3]]), tmp_path, story)
