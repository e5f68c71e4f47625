"""A whole reconciler on the real kernel: what it writes, keeps, restores, and explains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast.balancer.commands.trace_flow import trace
from holdfast.balancer.dataplane.api import Counters
from holdfast.balancer.dataplane.nftables import NftablesDataplane
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import resolve_services
from holdfast.balancer.vip import BackendEntry, Vip, VipKey, VipSettings
from holdfast.cli.doctor import Severity
from holdfast.cli.doctor.balancer import replies
from holdfast.cli.explain import balancer as explained
from holdfast.runtime.control import Declined
from holdfast.testing.fakes.dataplane import FakeDataplane
from holdfast.testing.fault import fault
from tests.balancer.dataplane.conformance import change
from tests.balancer.dataplane.nftables.harness import TABLE, V4, V6, WEB4, WEB6, Ground, by_server, is_served, spread
from tests.balancer.dataplane.nftables.reconciling import Truthful, comes_true, compared, keeping, site

Story = Callable[[NftablesDataplane, VipReconciler, Truthful], Awaitable[None]]
ALL = {VipKey(V4): VipSettings(), **{VipKey(V4, one): BackendEntry(100) for one in WEB4.values()}}


def kept(ground: Ground, folder: Path, story: Story, *, complete: bool = True) -> None:
    async def run(plane: NftablesDataplane) -> None:
        async with keeping(site(), plane, folder, complete=complete) as (reconciler, prober):
            await story(plane, reconciler, prober)

    ground.do(run)


def test_the_kernel_serves_what_is_configured_and_a_restart_writes_nothing(ground: Ground, tmp_path: Path) -> None:
    async def first(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)

    async def second(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        await compared(reconciler)
        assert plane.writes == 0

    kept(ground, tmp_path, first)
    assert is_served(ground)
    ground.restart()
    kept(ground, tmp_path, second)


def test_a_backend_that_dies_loses_its_weight_then_its_flows(ground: Ground, tmp_path: Path) -> None:
    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        prober.down = {"web-1"}
        dead = VipKey(V4, WEB4["web-1"])
        await comes_true(lambda: reconciler.target.held.get(dead) == BackendEntry(0, kill=True, base=100))
        assert (await plane.read())[dead] == BackendEntry(0, kill=True, base=100)

    kept(ground, tmp_path, story)
    assert set(spread(ground.connect(V4, 40))) == {"web-2", "web-3"}


async def never(_plane: NftablesDataplane) -> None:
    await asyncio.Event().wait()


@fault(
    "B15",
    without="holdfast.balancer.dataplane.nftables.dataplane:NftablesDataplane.lost",
    by=f"{__name__}:never",
    sees=(TimeoutError, r"comes_true\(lambda: plane.writes > writes, within=20\)"),
)
def test_B15_a_table_deleted_by_another_program_is_restored(ground: Ground, tmp_path: Path) -> None:
    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        await compared(reconciler)
        writes = plane.writes  # before: the table may be back before the tool that deleted it has ended
        await asyncio.to_thread(ground.nft, "delete", "table", "inet", TABLE)
        await comes_true(lambda: plane.writes > writes, within=20)
        await comes_true(lambda: reconciler.target.held == ALL)

    kept(ground, tmp_path, story)
    assert is_served(ground)


def test_B15_a_table_that_is_deleted_while_the_prober_is_silent_does_not_wait_for_it(
    ground: Ground, tmp_path: Path
) -> None:
    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        prober.silent = True
        await comes_true(lambda: reconciler.health.silent_since is not None)
        writes = plane.writes
        await asyncio.to_thread(ground.nft, "delete", "table", "inet", TABLE)
        await comes_true(lambda: plane.writes > writes and reconciler.target.held == ALL)
        assert reconciler.health.silent_since is not None

    kept(ground, tmp_path, story)
    assert is_served(ground)


@fault(
    "B24",
    without="holdfast.reconcile.sync:SyncGate.judge",
    sees=(AssertionError, r"VipKey\(other\) in await plane.read\(\)"),
)
def test_B24_no_vip_is_deleted_before_the_source_is_complete(ground: Ground, tmp_path: Path) -> None:
    other = Vip.of("192.0.2.99", "tcp", 80)
    ground.make(change(VipKey(other), VipSettings()), change(VipKey(other, WEB4["web-1"]), BackendEntry(100)))

    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held.keys() >= ALL.keys())
        await compared(reconciler)
        assert VipKey(other) in await plane.read()

    kept(ground, tmp_path, story, complete=False)


def test_B9_a_frontend_that_moves_to_the_other_family_is_served_there_and_nowhere_else(
    ground: Ground, tmp_path: Path
) -> None:
    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        reconciler.balancer.reload(resolve_services(site("2001:db8::1")), reconciler._clock.now())
        reconciler.complete(2)
        reconciler.reloaded()
        wanted = {VipKey(V6): VipSettings(), **{VipKey(V6, one): BackendEntry(100) for one in WEB6.values()}}
        await comes_true(lambda: reconciler.target.held == wanted)

    kept(ground, tmp_path, story)
    assert is_served(ground, V6)


def test_a_flow_is_explained_as_it_goes_and_as_a_new_one_would(ground: Ground, tmp_path: Path) -> None:
    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        (flow,) = await asyncio.to_thread(ground.connect, V4)
        server, source = await asyncio.to_thread(flow.server), "{}:{}".format(*flow.source)
        found = await trace(reconciler, source, "192.0.2.1:80")
        assert found["established"] == found["backend"]
        assert found["established"].startswith(f"{server} (")
        assert found["hashed"] == "source address and port"
        assert found["stands_in_for"] is None
        prober.down = {server}
        await comes_true(lambda: reconciler.target.held[VipKey(V4, WEB4[server])] == BackendEntry(0, base=100))
        later = await trace(reconciler, source, "www")
        assert later["established"] == found["established"]
        assert later["backend"] not in (None, found["backend"])
        assert later["stands_in_for"] == {"backend": found["backend"], "weight": 0, "base": 100}
        shown = " ".join(" ".join(explained.flow(later)).split())
        owner = f"{found['backend']}'s when that has its full weight (100)"
        assert f"STANDS IN the bucket is {owner}; its weight is 0 now" in shown

    kept(ground, tmp_path, story)


@pytest.mark.parametrize(
    ("source", "to", "sentence"),
    [
        ("10.0.0.1:x", "www", "not ADDRESS:PORT"),
        ("10.0.0.1:99999", "www", "not ADDRESS:PORT"),
        ("10.0.0.1", "www", "also spread by source port: write 10.0.0.1:PORT"),
        ("[2001:db8::7]:5", "www", "different address families"),
        ("10.0.0.1:5", "192.0.2.50:80", "no frontend has 192.0.2.50:80"),
        ("10.0.0.1:5", "192.0.2.1:80/sctp", "cannot have the protocol"),
    ],
)
def test_a_flow_that_cannot_be_traced_is_declined_in_a_sentence(
    ground: Ground, tmp_path: Path, source: str, to: str, sentence: str
) -> None:
    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        with pytest.raises(Declined, match=sentence):
            await trace(reconciler, source, to)

    kept(ground, tmp_path, story)


def test_traffic_and_disturbances_are_measured(ground: Ground, tmp_path: Path) -> None:
    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        flows = await asyncio.to_thread(lambda: by_server(ground.connect(V4, 10)))
        await reconciler.measure_traffic()
        await asyncio.to_thread(ground.nft, "delete", "table", "inet", TABLE)
        await comes_true(lambda: reconciler.meter.disturbances == 1)
        found = {
            (one.name, one.labels.get("frontend"), one.labels.get("backend")): one.value
            for family in reconciler.meter.collect()
            for one in family.samples
        }
        for name, mine in flows.items():
            assert found["holdfast_backend_flows", "www", name] == len(mine)
            assert found["holdfast_backend_flows_opened_total", "www", name] == len(mine)
            assert ("holdfast_backend_packets_total", "www", name) not in found
        assert found["holdfast_dataplane_disturbed_total", None, None] == 1
        assert found["holdfast_dataplane_writes_total", None, None] == plane.writes

    kept(ground, tmp_path, story)
    assert '"disturbed"' in "".join(one.read_text() for one in tmp_path.rglob("*") if one.is_file())


def test_a_backend_whose_replies_take_another_way_is_found(ground: Ground, tmp_path: Path) -> None:
    server = ground.site.servers["web-2"]

    async def story(plane: NftablesDataplane, reconciler: VipReconciler, prober: Truthful) -> None:
        await comes_true(lambda: reconciler.target.held == ALL)
        await asyncio.to_thread(ground.knock, V4, 60)
        async with asyncio.timeout(60):
            found = await measured(reconciler)
            while found["web-1"].unanswered or found["web-3"].unanswered:
                await asyncio.sleep(0.05)
                found = await measured(reconciler)
        assert found["web-2"].unanswered == found["web-2"].flows >= 5
        rows = [{"frontend": "www", "backend": name, **asdict(passed)} for name, passed in found.items()]
        assert [(one.severity, one.sentence.split()[0]) for one in replies(rows)] == [(Severity.WRONG, "web-2")]

    server.batch(["route add blackhole 10.1.1.2"])
    try:
        kept(ground, tmp_path, story)
    finally:
        server.batch(["route delete blackhole 10.1.1.2"])


async def measured(reconciler: VipReconciler) -> dict[str, Counters]:
    await reconciler.measure_traffic()
    return {backend: passed for (_, backend), passed in reconciler.meter.passed.items()}


def test_a_dataplane_that_cannot_trace_flows_is_named(tmp_path: Path) -> None:
    async def ask() -> None:
        async with keeping(site(), FakeDataplane(), tmp_path) as (reconciler, _):
            with pytest.raises(Declined, match="fake cannot trace flows"):
                await trace(reconciler, "10.0.0.1:5", "www")

    asyncio.run(ask())
