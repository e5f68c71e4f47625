"""Worker process of the prober: probes what the balancer assigns, and reports the results.

It probes nothing before the first assignment, and keeps the last one while the balancer is away. Results are sent in
batches within 10 ms, passes that change nothing as a number with the next report; while the balancer does not read
them, the newest result of each target waits. When it cannot keep up or
has no access to its namespace, it reports trouble instead of failures (B14).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import random
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from holdfast.balancer.probing.channel import ProberServer
from holdfast.balancer.probing.messages import REPORT_EVERY, Assignment, Order, ProbeCode, ProbeReport, ProbeResult
from holdfast.balancer.probing.probe import ProbeTarget
from holdfast.balancer.probing.prober import Prober
from holdfast.model.base.time import nanoseconds
from holdfast.netlink.netns import NetworkNamespace
from holdfast.reconcile import Away
from holdfast.runtime.control import Request, Who
from holdfast.runtime.daemon.worker import Spec, Worker

log = structlog.get_logger(__name__)

PROBER = Spec("prober", "holdfast.balancer.probing.worker:probe")
PROBES_SOCKET = "probes"
"""Name of the socket between balancer and prober: `worker.paths.socket(PROBES_SOCKET)`."""
_BATCH = 0.01
_TICK = 0.002  # starts within it share one turn of the event loop, which costs a third of a probe
_JUDGED_OVER = 20  # reports
_RECENT = 16_384
_NICENESS = -10
_NS = 1_000_000_000


class Lateness:
    """Collector: lateness of the last few thousand starts, as quantiles."""

    def __init__(self) -> None:
        self._recent: collections.deque[int] = collections.deque(maxlen=_RECENT)

    def note(self, late: Iterable[int]) -> None:
        self._recent.extend(late)

    def collect(self) -> Iterator[Metric]:
        yield _quantiles("holdfast_probe_lateness_seconds", "Lateness of recent probe starts.", sorted(self._recent))


class Durations:
    """Collector: time that the last passing probe of each target took, as quantiles over the targets."""

    def __init__(self, latest: Callable[[], Mapping[str, int]]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        ordered = sorted(took for took in self._latest().values() if took >= 0)
        yield _quantiles("holdfast_probe_seconds", "Time of the last passing probe of each target.", ordered)


def _quantiles(name: str, what: str, ordered: Sequence[int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=["quantile"])
    for quantile in (0.5, 0.99, 1.0):
        at = min(len(ordered) - 1, int(len(ordered) * quantile))
        family.add_metric([f"{quantile:g}"], ordered[at] / _NS if ordered else 0.0)
    return family


class ProberMetrics:
    def __init__(self, registry: CollectorRegistry, latest: Callable[[], Mapping[str, int]] = dict) -> None:
        registry.register(Durations(latest))
        self.lateness = Lateness()
        registry.register(self.lateness)
        self.probes = Counter("holdfast_probes", "Finished probes, by code.", ["code"], registry=registry)
        self.late = Counter("holdfast_probes_late", "Late probes, whose failure does not count.", registry=registry)
        self.targets = Gauge("holdfast_probe_targets", "Probe targets.", registry=registry)

    def count(self, codes: Mapping[ProbeCode, int], late: int) -> None:
        for code, count in codes.items():
            self.probes.labels(code=code.value).inc(count)
        self.late.inc(late)


class CountedPasses:
    """Passes since the last report that are not sent one by one."""

    def __init__(self) -> None:
        self.codes: dict[ProbeCode, int] = {}
        self.late = 0
        self._newest = self._other = ("", "")
        """Address and target of the newest pass, and of the newest at another address."""

    def note(self, target: ProbeTarget, code: ProbeCode, late: bool) -> None:
        self.codes[code] = self.codes.get(code, 0) + 1
        self.late += late
        address = target.endpoint[0]
        if address != self._newest[0]:
            self._other = self._newest
        self._newest = address, target.id

    @property
    def passing(self) -> tuple[str, ...]:
        """Targets of these passes, the newest last."""
        return tuple(name for address, name in (self._other, self._newest) if address)


class ProberJob:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._metrics = ProberMetrics(worker.metrics.registry, lambda: self._prober.latencies())
        self._namespace = NetworkNamespace()
        self._wanted = Assignment(())
        self._results: list[ProbeResult] = []
        self._passes = CountedPasses()
        self._unsent: dict[str, ProbeResult] = {}
        self._lateness: list[int] = []
        self._trouble = ""
        self._overload = Overload()
        self._wake: asyncio.TimerHandle | None = None
        self._flush: asyncio.TimerHandle | None = None
        self._prober = Prober(
            self._now,
            lambda: random.uniform(-1, 1),
            self._on_result,
            self._lateness.append,
            self._on_pass,
            worker.config.balancer.probe_networks,
        )
        self._server = ProberServer(worker.paths.socket(PROBES_SOCKET), self._on_order)

    async def run(self) -> None:
        _prepare_process()
        self._worker.vitals.state = "waiting: balancer"
        self._worker.handlers["latencies"] = self._latencies
        async with self._server:
            self._loop.add_reader(self._prober.fileno(), self._turn)
            try:
                while not await self._worker.stopped(REPORT_EVERY):
                    self._enter_namespace()
                    self._report_periodically()
            finally:
                self._close()

    def _close(self) -> None:
        for timer in (self._wake, self._flush):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._prober.fileno())
        self._prober.close()
        self._namespace.close()

    def _on_order(self, order: Order) -> None:
        if isinstance(order, Assignment):
            self._wanted = order
            self._enter_namespace()
            if not self._trouble:
                self._assign()
        else:
            self._wanted = msgspec.structs.replace(
                self._wanted, intervals={**self._wanted.intervals, **order.intervals}
            )
            self._prober.set_intervals(order.intervals)
        self._turn()

    def _enter_namespace(self) -> None:
        """Enter the network namespace of the assignment; without it nothing is probed."""
        before = self._trouble
        try:
            moved = self._namespace.settle(self._wanted.namespace)
            self._trouble = ""
        except Away as sentence:
            self._trouble = str(sentence)
            if not before:
                log.error("cannot enter the network namespace; probing stops", error=str(sentence))
                self._prober.assign((), {})
            return
        if moved:
            self._prober.leave_network()
        if before:
            log.info("probing continues")
            self._assign()

    def _assign(self) -> None:
        wanted = self._wanted
        self._prober.assign(wanted.targets, wanted.intervals, nanoseconds(wanted.first_within))

    def _turn(self) -> None:
        due = self._prober.turn()
        if self._wake is not None:
            self._wake.cancel()
        ahead = (due - self._now()) / _NS
        self._wake = self._loop.call_later(max(_TICK, ahead) if ahead > 0 else 0, self._turn)

    async def _latencies(self, _request: Request, _who: Who) -> Any:
        """Answer the time in ms that the last probe of each target took; None if it did not pass."""
        return {name: None if took < 0 else round(took / 1e6, 2) for name, took in self._prober.latencies().items()}

    def _now(self) -> int:
        return self._worker.clock.now().ns

    def _on_result(self, result: ProbeResult) -> None:
        self._results.append(result)
        if self._flush is None:
            self._flush = self._loop.call_later(_BATCH, self._report)

    def _on_pass(self, target: ProbeTarget, code: ProbeCode, late: bool) -> None:
        self._passes.note(target, code, late)

    def _report(self) -> None:
        """Send the results; what cannot be sent waits, one result per target."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        results, self._results = self._results, []
        passes, self._passes = self._passes, CountedPasses()
        codes = collections.Counter(result.code for result in results) + collections.Counter(passes.codes)
        late = sum(result.late for result in results) + passes.late
        self._metrics.count(codes, late)
        self._overload.count(codes.total(), late)
        if self._unsent:
            self._unsent |= {result.target: result for result in results}
            results = list(self._unsent.values())
        self._metrics.lateness.note(self._lateness)
        self._lateness.clear()
        trouble = self._trouble or self._overload.sentence
        report = ProbeReport(
            self._worker.clock.now(),
            tuple(results),
            self._prober.targets,
            trouble,
            sum(passes.codes.values()),
            passes.passing,
        )
        if self._server.send(report):
            self._unsent.clear()
        else:
            known = {target.id for target in self._wanted.targets}
            self._unsent = {result.target: result for result in results if result.target in known}

    def _report_periodically(self) -> None:
        """Report also without results, and update the vitals."""
        self._report()
        self._overload.judge()
        self._metrics.targets.set(self._prober.targets)
        state = f"probing {self._prober.targets:,} targets" if self._prober.targets else "waiting: balancer"
        self._worker.vitals.attempted(
            success=not self._trouble, state=self._trouble or self._overload.sentence or state
        )


class Overload:
    """Detects that the prober cannot keep up, over the last few seconds."""

    def __init__(self) -> None:
        self.sentence = ""
        self._reports = self._all = self._late = 0

    def count(self, results: int, late: int) -> None:
        self._all += results
        self._late += late

    def judge(self) -> None:
        self._reports += 1
        if self._reports < _JUDGED_OVER:
            return
        share = self._late / self._all if self._all else 0.0
        sentence = (
            f"overloaded: {share:.0%} of the probes are late, and their failures do not count" if share > 0.1 else ""
        )
        if sentence and not self.sentence:
            log.warning("prober is overloaded", late_share=round(share, 2))
        elif self.sentence and not sentence:
            log.warning("prober keeps up again", late_share=round(share, 2))
        self.sentence = sentence
        self._reports = self._all = self._late = 0


def _prepare_process() -> None:
    """Raise the limit of descriptors, and the scheduling priority where that is permitted."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)


async def probe(worker: Worker) -> None:
    await ProberJob(worker).run()
