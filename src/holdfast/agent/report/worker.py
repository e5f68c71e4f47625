"""The reporter's worker: asks the worker beside it how it is, once a second, and tells the store."""

from __future__ import annotations

import socket

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from holdfast.agent.report.reporter import Around, Reporter, ReportingHost
from holdfast.agent.report.schedule import ReportIntervals
from holdfast.config.root import Config
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.fleet.agent_report import AgentReport
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.process import boot_id
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import StoreMemory

REPORTER = Spec("reporter", "holdfast.agent.report.worker:report")
SPEAKER = "peers"
"""The worker that is asked how it is."""
ROLE = "agent"
_ANSWER_WITHIN = Duration(seconds=5)
_NEGLECTED_AFTER = Duration(seconds=60)
"""A look ends by the deadlines of its calls; one that takes a minute hangs."""


def host_name(config: Config) -> str:
    return config.agent.host or socket.gethostname()


class ReporterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.age = Gauge(
            "holdfast_agent_report_age_seconds",
            "Since the host was last said to be alive; since the start, if it was not yet.",
            registry=registry,
        )
        self.rivals = Gauge(
            "holdfast_agent_rivals", "Other agents that report under the name of this host.", registry=registry
        )


class ReporterJob:
    def __init__(self, worker: Worker) -> None:
        config = worker.config
        self._worker = worker
        self._started = worker.clock.now()
        self._metrics = ReporterMetrics(worker.metrics.registry)
        self._socket = worker.paths.socket(SPEAKER)
        self._store = open_store(config.store)
        host = ReportingHost(Region(config.store.region or ""), host_name(config), boot_id())
        memory = StoreMemory(worker.paths.state, ROLE)
        tempo = ReportIntervals(interval=config.agent.report_interval, silent_after=config.agent.silent_after)
        around = Around(worker.clock, self._asked, memory.recall, self._show, self._store.clock)
        self._reporter = Reporter(self._store, host, config.agent.report_ttl, tempo, around)

    async def run(self) -> None:
        try:
            await self._reporter.run(self._worker.stopping)
        finally:
            await self._store.close()

    async def _asked(self) -> AgentReport | None:
        self._worker.vitals.duty = self._worker.clock.now() + _NEGLECTED_AFTER
        said = await ask(self._socket, Request("report"), _ANSWER_WITHIN.total_seconds())
        return None if said.error else msgspec.convert(said.result, AgentReport)

    def _show(self, success: bool, state: str) -> None:
        said = self._reporter.alive or self._started
        self._metrics.age.set((self._worker.clock.now() - said).total_seconds())
        self._metrics.rivals.set(bool(self._reporter.rival))
        self._worker.vitals.attempted(success=success, state=state)


async def report(worker: Worker) -> None:
    await ReporterJob(worker).run()
