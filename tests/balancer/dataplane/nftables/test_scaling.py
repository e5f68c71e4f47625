"""Scaling in and out, and replacing all backends, under traffic on the kernel: no request fails, and backends that have
left get no new flow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from holdfast.balancer.dataplane.nftables import NftablesDataplane
from holdfast.balancer.desired import leaving
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import resolve_services
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.base.time import Instant, seconds
from holdfast.netlink.netns import inside
from holdfast.runtime.clock import SystemClock
from holdfast.testing.real.anycast import SERVERS, address
from tests.balancer.dataplane.nftables.harness import PORT, V4, Flow, Ground, _opened
from tests.balancer.dataplane.nftables.reconciling import comes_true, keeping
from tests.balancer.harness import configuration


def pool(*servers: str, standby: str = "") -> BalancerSettings:
    """Two backends on each server, behind one VIP; and one on another server on standby."""
    ports = {f"{name}-{port}": (name, port) for name in SERVERS for port in (PORT, PORT + 1)}
    lines = ["sync-interval: 1h", "healthchecks: {web: {type: tcp}}", "backends:"]
    lines += [
        f"  {key}: {{address: {address(name, 4)}, port: {port}, healthcheck: web}}"
        for key, (name, port) in ports.items()
        if name in (*servers, standby)
    ]
    members = ", ".join(f"{key}: " for key, (name, _) in ports.items() if name in servers)
    pools = f"{{backends: {{{members}}}}}" + (f", {{backends: {{{standby}-{PORT}: }}}}" if standby else "")
    lines += ["frontends:", f"  www: {{address: 192.0.2.1, port: 80, pools: [{pools}]}}"]
    return configuration("\n".join(lines))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a request may take longer than the half second after which the flows of who has left end."""
    monkeypatch.setattr(leaving, "LEAVES_AFTER", seconds(2))


class Traffic:
    """Clients that send one request after the other, each on a new connection."""

    def __init__(self, ground: Ground, clients: int = 3) -> None:
        self._namespace = ground.site.client.system_name
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(clients)]
        self.answers: list[tuple[float, str]] = []
        """When each request began, and who answered it."""
        self.failures: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        for one in self._threads:
            one.start()
        try:
            yield
        finally:
            self._stopping.set()
            for one in self._threads:
                one.join()

    def servers(self, *, after: float) -> set[str]:
        """Servers of the requests that began after that time."""
        return {name for began, name in self.answers if began > after}

    def has_begun(self, *, after: float) -> bool:
        """Tell whether enough requests began after that time to have met every server."""
        return sum(began > after for began, _ in self.answers) > 100

    def _send(self) -> None:
        inside(self._namespace, self._requests)

    def _requests(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                with _opened(V4, V4.port) as connection:
                    self.answers.append((began, Flow(connection).server()))
            except OSError as error:
                self.failures.append(str(error))


def test_six_backends_become_two_and_six_again_without_a_failed_request(ground: Ground, tmp_path: Path) -> None:
    traffic = Traffic(ground)
    took: list[float] = []

    async def story(plane: NftablesDataplane) -> None:
        async with keeping(pool(*SERVERS), plane, tmp_path) as (reconciler, _):
            revision = 1
            await comes_true(lambda: len(reconciler.target.held) == 7)
            with traffic.running():
                await comes_true(lambda: {name for _, name in traffic.answers} == set(SERVERS))
                for wanted in (SERVERS[:1], SERVERS) * 3:
                    revision += 1
                    asked = time.monotonic()
                    reconciler.touch(reconciler.balancer.reload(resolve_services(pool(*wanted)), now()))
                    reconciler.complete(revision)
                    reconciler.reloaded()
                    await comes_true(partial(serves, reconciler, 2 * len(wanted)))
                    written = time.monotonic()
                    took.append(written - asked)
                    await comes_true(partial(traffic.has_begun, after=written))
                    await comes_true(partial(holds, reconciler, 2 * len(wanted) + 1))
                    assert traffic.servers(after=written) == set(wanted)

    ground.do(story)
    assert traffic.failures == []
    assert min(took[::2]) < 1, (
        "after that time backends that leave get no new flow; a busy machine may delay some rounds"
    )


def test_a_pool_is_replaced_by_another_and_back_without_a_failed_request_and_without_the_standby(
    ground: Ground, tmp_path: Path
) -> None:
    traffic = Traffic(ground)
    first, second, standby = SERVERS

    async def story(plane: NftablesDataplane) -> None:
        config = pool(first, standby=standby)
        async with keeping(config, plane, tmp_path, max_delay=seconds(60)) as (reconciler, prober):
            await comes_true(partial(serves, reconciler, 2))
            with traffic.running():
                await comes_true(lambda: len(traffic.answers) > 100)
                for revision, wanted in enumerate((second, first) * 2, 2):
                    prober.silent = True
                    reconciler.touch(reconciler.balancer.reload(resolve_services(pool(wanted, standby=standby)), now()))
                    reconciler.complete(revision)
                    reconciler.reloaded()
                    await comes_true(partial(holds, reconciler, 6))
                    await comes_true(partial(traffic.has_begun, after=time.monotonic()))
                    prober.silent = False
                    await comes_true(partial(holds, reconciler, 4))
                    since = time.monotonic()
                    await comes_true(partial(traffic.has_begun, after=since))
                    assert traffic.servers(after=since) == {wanted}

    ground.do(story)
    assert traffic.failures == []
    assert standby not in traffic.servers(after=0)


def serves(reconciler: VipReconciler, count: int) -> bool:
    """Tell whether that many backends get new flows."""
    return sum(one.weight > 0 for one in reconciler.target.entries(V4).values()) == count


def holds(reconciler: VipReconciler, count: int) -> bool:
    return len(reconciler.target.held) == count


def now() -> Instant:
    return SystemClock().now()
