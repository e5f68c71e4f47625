"""A whole balancer on a VPP in this process: the real reconciler, clock and API client, a prober with given results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.balancer.dataplane.open import open_dataplane
from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane
from holdfast.balancer.health import HealthState
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import resolve_services
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.control.intent import Intent
from holdfast.runtime.clock import SystemClock
from holdfast.testing.fakes.vpp import FakeVip, FakeVpp, VipPlace
from tests.balancer.dataplane.nftables.reconciling import Truthful, comes_true, keeping
from tests.balancer.harness import configuration

PLACE = ("192.0.2.1/32", 6, 80)
"""The VIP of frontend f1, as VPP names it."""


def server(number: int) -> str:
    return f"10.0.0.{number}"


def config(
    pools: Sequence[Sequence[int]], *, vips: Sequence[int] = (1,), extra: str = "", table_length: int = 4096
) -> BalancerSettings:
    """Frontends fN at 192.0.2.N with these pools of backends bN at 10.0.0.N, in the given order; they are compared only
    when something happens."""
    numbers = [number for pool in pools for number in pool]
    lines = ["sync-interval: 1h", f"dataplane: {{kind: vpp, vpp: {{table-length: {table_length}}}}}"]
    lines += ["healthchecks: {web: {type: tcp, interval: 1s, fall: 1}}", "backends:"]
    lines += [f"  b{number}: {{address: {server(number)}, port: 80, healthcheck: web}}" for number in numbers]
    written = ", ".join(f"{{backends: {{{', '.join(f'b{number}: {{}}' for number in pool)}}}}}" for pool in pools)
    lines.append("frontends:")
    lines += [f"  f{vip}: {{address: 192.0.2.{vip}, port: 80, pools: [{written}]{extra}}}" for vip in vips]
    return configuration("\n".join(lines))


class VppSite:
    """A balancer that runs on a VPP of this process."""

    def __init__(self, vpp: FakeVpp, reconciler: VipReconciler, prober: Truthful) -> None:
        self.vpp = vpp
        self.reconciler = reconciler
        self.prober = prober

    def weights(self, vip: int = 1) -> dict[str, int]:
        """Weights in VPP by server, without those that are removed."""
        found = self.vpp.vips.get((f"192.0.2.{vip}/32", 6, 80))
        servers = {} if found is None else found.servers
        return {address: one.weight for address, one in servers.items() if not one.removed}

    async def healthy(self) -> None:
        """Wait until every backend is up."""
        health = self.reconciler.balancer.health
        await comes_true(lambda: all(one.state is HealthState.UP for one in health.values()))

    async def settled(self) -> None:
        """Wait until every backend is up and nothing is left to compare, to do or to try again."""
        await self.healthy()
        await comes_true(lambda: not (self.reconciler.loop.backlog() or self.reconciler._changed_frontends))

    def is_served_by(self, *numbers: int) -> bool:
        return self.weights() == {server(number): 100 for number in numbers}

    def reload(self, changed: BalancerSettings) -> None:
        reconciler = self.reconciler
        reconciler.balancer.reload(resolve_services(changed), SystemClock().now())
        reconciler.complete(reconciler.source.revision + 1)
        reconciler.reloaded()

    def apply_intents(self, *intents: Intent) -> None:
        reconciler, clock = self.reconciler, SystemClock()
        reconciler.touch(reconciler.balancer.apply_intents(intents, clock.wall(), clock.now()))
        reconciler.reloaded()


def on_vpp(
    settings: BalancerSettings,
    folder: Path,
    story: Callable[[VppSite], Awaitable[None]],
    holding: Mapping[VipPlace, FakeVip] | None = None,
) -> FakeVpp:
    """Run the balancer of this configuration on a VPP that holds these VIPs at first."""
    vpp = FakeVpp(folder / "api.sock")
    vpp.vips.update(holding or {})

    async def main() -> None:
        async with vpp.running(), asyncio.timeout(120):
            own = msgspec.structs.replace(settings.dataplane.vpp, api_socket=str(vpp.path))
            plane = open_dataplane(msgspec.structs.replace(settings.dataplane, vpp=own), folder)
            assert isinstance(plane, VppDataplane)
            try:
                async with keeping(settings, plane, folder) as (reconciler, prober):
                    await story(VppSite(vpp, reconciler, prober))
            finally:
                await plane.disconnect()

    asyncio.run(main())
    return vpp
