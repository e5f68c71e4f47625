"""What an operator is told of a balancer on VPP: `explain`, `doctor`, metrics and history."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.balancer.commands.shares import shares_of
from holdfast.balancer.commands.trace_flow import trace
from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.dataplane.vpp import stats
from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane
from holdfast.cli.explain import balancer as explained
from holdfast.model.control.intent import IntentKind
from holdfast.reconcile import Away
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Declined
from holdfast.runtime.decision_log import history
from tests.balancer.dataplane.nftables.reconciling import comes_true, compared
from tests.balancer.dataplane.vpp.site import VppSite, config, on_vpp, server
from tests.balancer.test_reconciler import intent


def test_explain_names_the_server_in_vpp_and_its_share_of_buckets(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.is_served_by(1, 2))
        site.apply_intents(intent(IntentKind.WEIGHT, "b1", 60))
        await comes_true(lambda: site.weights() == {server(1): 60, server(2): 100})
        await compared(site.reconciler)
        services, view = site.reconciler.balancer.services, BalancerViews(site.reconciler, SystemClock().now())
        shares = await shares_of(site.reconciler, services.at)
        one = "\n".join(explained.backend(view.explain_backend(services.backends["b1"], shares)))
        all_of_them = "\n".join(explained.frontend(view.explain_frontend(services.frontends["f1"], shares)))
        flow = "\n".join(explained.flow(await trace(site.reconciler, "198.51.100.1:4000", "f1")))
        share = "1,548 of 4,096 buckets (37.8% of new flows)"
        assert f"programmed 60, {share}" in one
        assert f"b1 ({server(1)}:80) up, weight 100, set to 60 by an operator" in all_of_them
        assert f"programmed 60, {share}" in all_of_them
        assert "the dataplane does not tell which" in flow
        assert f"b1 ({server(1)}:80), weight 60, {share}" in flow

    on_vpp(config([[1, 2]]), tmp_path, story)


def test_explain_says_what_it_knows_while_vpp_is_away(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.is_served_by(1))
        site.vpp.die()
        assert await shares_of(site.reconciler, site.reconciler.balancer.services.at) == {}
        with pytest.raises(Declined, match="run: holdfast explain frontend f1"):
            await trace(site.reconciler, "198.51.100.1:4000", "f1")

    on_vpp(config([[1]]), tmp_path, story)


def test_history_has_what_was_written_and_metrics_count_it(tmp_path: Path) -> None:
    async def story(site: VppSite) -> None:
        await comes_true(lambda: site.is_served_by(1, 2))
        site.prober.down = {"b1"}
        await comes_true(lambda: len(site.vpp.flushed) == 1)
        await compared(site.reconciler)
        plane = site.reconciler.dataplane
        assert isinstance(plane, VppDataplane)
        plane.totals = {"new": 3, "no_server": 7}
        found = {
            (sample.name, sample.labels.get("result")): sample.value
            for metric in site.reconciler.meter.collect()
            for sample in metric.samples
        }
        assert found["holdfast_vpp_packets_total", "no_server"] == 7
        assert found["holdfast_dataplane_writes_total", None] == len(site.vpp.calls)

    on_vpp(config([[1, 2]]), tmp_path, story)
    told = [(one.op, one.key) for one in history(tmp_path)]
    entry = f"192.0.2.1:80/tcp → {server(1)}:80"
    assert told.count(("create", "192.0.2.1:80/tcp")) == 1
    assert told.count(("replace", entry)) == 2  # its weight, and a probe interval later its flows


def test_a_vpp_without_a_statistics_segment_is_away(tmp_path: Path) -> None:
    with pytest.raises(Away, match="is statseg enabled in VPP's configuration"):
        stats.read(str(tmp_path / "stats.sock"), {})
