"""The reporter's worker: asks the dataplane worker for its report once a second, and writes it to the store."""

from __future__ import annotations

from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from holdfast.agent import PEERS_WORKER, ROLE, host_name
from holdfast.agent.report.reporter import Reporter
from holdfast.agent.report.reporting_host import ReportingHost
from holdfast.agent.report.schedule import ReportIntervals
from holdfast.config.root import Config
from holdfast.model.base.region import configured_region
from holdfast.model.base.time import Duration
from holdfast.model.fleet.agent_report import AgentReport
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.process import boot_id
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import RolePaths
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import StoreMemory

REPORTER = Spec("reporter", "holdfast.agent.report.worker:report")
_ANSWER_WITHIN = Duration(seconds=5)
_TICK_WITHIN = Duration(seconds=60)
"""A tick ends by the deadlines of its calls; one that takes a minute hangs."""


class ReporterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.age = Gauge(
            "holdfast_agent_report_age_seconds",
            "Age of the last full report; before the first one, time since the start.",
            registry=registry,
        )
        self.duplicates = Gauge(
            "holdfast_agent_duplicates", "Other agents that report under the name of this host.", registry=registry
        )


def instance(runtime: Path) -> str:
    """Identify an agent of this boot by its runtime folder: it stays over restarts, and no two agents share one."""
    found = runtime.stat()
    return f"{found.st_dev:x}-{found.st_ino:x}"


def reporting_host(config: Config, paths: RolePaths) -> ReportingHost:
    return ReportingHost(configured_region(config), host_name(config), boot_id(), instance(paths.runtime))


class ReporterJob:
    def __init__(self, worker: Worker) -> None:
        config = worker.config
        self._worker = worker
        self._started = worker.clock.now()
        self._metrics = ReporterMetrics(worker.metrics.registry)
        self._socket = worker.paths.socket(PEERS_WORKER)
        self._store = open_store(config.store)
        worker.metrics.follow(self._store.contact, worker.clock.now)
        self._reporter = Reporter(
            self._store,
            reporting_host(config, worker.paths),
            config.agent.report_ttl,
            ReportIntervals(interval=config.agent.report_interval, silent_after=config.agent.silent_after),
            worker.clock,
            query_worker=self._query_worker,
            remembered=StoreMemory(worker.paths.state, ROLE).load,
            show=self._show,
            store_clock=self._store.clock,
        )

    async def run(self) -> None:
        try:
            await self._reporter.run(self._worker.stopping)
        finally:
            await self._store.close()

    async def _query_worker(self) -> AgentReport | None:
        self._worker.vitals.duty = self._worker.clock.now() + _TICK_WITHIN
        request = Request("report", {"reported": self._reporter.revision})  # the worker's watches must deliver it
        answer = await ask(self._socket, request, _ANSWER_WITHIN.total_seconds())
        return None if answer.error else msgspec.convert(answer.result, AgentReport)

    def _show(self, success: bool, state: str) -> None:
        last = self._reporter.alive or self._started
        self._metrics.age.set((self._worker.clock.now() - last).total_seconds())
        self._metrics.duplicates.set(bool(self._reporter.duplicate))
        self._worker.vitals.attempted(success=success, state=state)


async def report(worker: Worker) -> None:
    await ReporterJob(worker).run()
