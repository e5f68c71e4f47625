"""Commands of the supervisor's control socket, some of them forwarded to a worker, and the metrics of all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from holdfast import __version__
from holdfast.config.loading.reload import Reload
from holdfast.config.root import Config
from holdfast.model.base.region import Region
from holdfast.runtime.clock import Clock
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.control import Answer, Declined, Handler, Request, Unanswered, Who, ask
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.pulse import RESTART_REASONS
from holdfast.runtime.daemon.report import DaemonReport, report
from holdfast.runtime.decision_log import history
from holdfast.runtime.paths import RolePaths
from holdfast.runtime.recent_deletes import recent_deletes
from holdfast.store.api import Store, StoreAway, StoreError

T = TypeVar("T")
_SERVERS_WITHIN = 4.0
_FORWARDED_S = 60.0
"""The longest that a command for a worker is waited for."""
_CONFIRM_EVERY = 0.05
_CONFIRM_TRIES = 60
"""Three seconds: a worker shows its configuration twice a second, and the command waits for five."""


class Supervises(Protocol):
    """The supervisor, as far as these commands change something."""

    config: Config
    config_refused: str

    def reload(self) -> Reload | str: ...

    def unconfirmed(self) -> tuple[str, ...]: ...

    def restart(self, name: str, who: str, why: str) -> None: ...


class SupervisorCommands:
    def __init__(self, paths: RolePaths, workers: Sequence[str], clock: Clock, supervisor: Supervises) -> None:
        self._paths = paths
        self._workers = workers
        self._clock = clock
        self._supervisor = supervisor

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "status": self._status,
            "metrics": self._metrics,
            "balancers": self._balancers,
            "deletes": self._deletes,
            "history": self._history,
            "other-histories": self._other_histories,
            "reload": self._reload,
            "restart": self._restart,
            "servers": self._servers,
            "tell": self._forward_command,
        }

    async def _status(self, _request: Request, _who: Who) -> Any:
        return msgspec.to_builtins(self._report())

    def _report(self) -> DaemonReport:
        board = Board.open(self._paths.board, read_only=True)
        found = report(board, self._paths.role, __version__, self._clock.now())
        return msgspec.structs.replace(found, config_refused=self._supervisor.config_refused)

    async def _metrics(self, _request: Request, _who: Who) -> str:
        return await self.metrics()

    async def metrics(self) -> str:
        """Return the exposition of all workers."""
        found = self._report()
        # C5: a completed one-shot job is not down.
        names = [worker.name for worker in found.workers if worker.phase != "completed"]
        answers = await asyncio.gather(*(self._forward(name, Request("metrics")) for name in names))
        texts = {n: None if a.error else str(a.result) for n, a in zip(names, answers, strict=True)}
        return of_report(found) + gather(texts)

    async def _history(self, request: Request, _who: Who) -> Any:
        key, last = _history_args(request)
        found = await asyncio.to_thread(history, self._paths.decisions, key, last, self._paths.role)
        return msgspec.to_builtins(found)

    async def _deletes(self, _request: Request, _who: Who) -> Any:
        paths = self._paths
        return dict(await asyncio.to_thread(recent_deletes, paths.decisions, self._clock.wall(), paths.role))

    async def _reload(self, _request: Request, _who: Who) -> Any:
        """Reload, and wait until every worker shows on the board that it has the new configuration."""
        result = self._supervisor.reload()
        if isinstance(result, str):
            raise Declined(f"the new configuration was rejected, and the running one stays in force:\n{result}")
        for _ in range(_CONFIRM_TRIES):
            if not self._supervisor.unconfirmed():
                break
            await asyncio.sleep(_CONFIRM_EVERY)
        return msgspec.to_builtins(msgspec.structs.replace(result, unconfirmed=self._supervisor.unconfirmed()))

    async def _restart(self, request: Request, who: Who) -> str:
        """Restart one worker. A request through the store comes from our own elector, with the name of the operator."""
        self._require_worker(request.worker)
        reports = {one.name: one for one in self._report().workers}
        why = request.args.get("reason")
        if not isinstance(why, str) or not why.strip():
            raise Declined("a reason is needed: give it with --reason")
        if reports[request.worker].phase == "completed":
            raise Declined(f"{request.worker} has completed its job: there is nothing to restart")
        forwarded = request.args.get("who") if who.pid in {one.pid for one in reports.values()} else None
        operator = f"{forwarded} (through the store)" if forwarded else who.name
        self._supervisor.restart(request.worker, operator, why.strip())
        return f"{request.worker} restarts"

    async def _servers(self, _request: Request, _who: Who) -> Any:
        """Return all servers of the region, which every daemon can read from its store."""
        from holdfast.store.servers import read_servers

        return msgspec.to_builtins(await self._of_store("the servers", read_servers, _SERVERS_WITHIN))

    async def _balancers(self, _request: Request, _who: Who) -> Any:
        """Return all balancers of the region with what they report."""
        from holdfast.store.balancers import read_balancers

        return msgspec.to_builtins(await self._of_store("the balancers", read_balancers, _SERVERS_WITHIN))

    async def _other_histories(self, request: Request, _who: Who) -> Any:
        """Return the decisions of the servers that the caller does not know, which only a server may ask for."""
        from holdfast.runtime.daemon.other_histories import WITHIN, other_histories

        key, last = _history_args(request)
        ask = partial(other_histories, known=request.args.get("known") or (), key=key, last=last)
        return msgspec.to_builtins(await self._of_store("the decisions of other servers", ask, 1.5 * WITHIN))

    async def _of_store(self, what: str, read: Callable[[Store, Region], Awaitable[T]], within: float) -> T:
        """Read something from the store that this daemon is configured with."""
        from holdfast.runtime.store_client import open_store

        config = self._supervisor.config.store
        try:
            store = open_store(config)
        except SecretRefused as refused:
            raise Declined(str(refused)) from refused
        try:
            async with asyncio.timeout(within):
                return await read(store, Region(config.region or ""))
        except (StoreAway, StoreError) as error:
            raise Declined(f"{what} cannot be read: {error}") from error
        except TimeoutError as error:
            raise Declined(f"{what} cannot be read: the store does not answer within {within:g} s") from error
        finally:
            await store.close()

    def _require_worker(self, name: str) -> None:
        if name not in self._workers:
            raise Declined(f"there is no worker {name!r}; there are: {', '.join(self._workers)}")

    async def _forward_command(self, request: Request, who: Who) -> Any:
        """Forward a command to one worker, on behalf of the caller."""
        self._require_worker(request.worker)
        command = request.args.get("do")
        if not isinstance(command, str):
            raise Declined("the command for the worker is missing")
        forwarded = Request(command, request.args.get("args") or {}, who=who, within=min(request.within, _FORWARDED_S))
        answer = await self._forward(request.worker, forwarded)
        if answer.error:
            raise Unanswered(answer.error) if answer.silent else Declined(answer.error)
        return answer.result

    async def _forward(self, worker: str, request: Request) -> Answer:
        return await ask(self._paths.socket(worker), request, timeout=request.within)


def _history_args(request: Request) -> tuple[str | None, int]:
    key, last = request.args.get("key"), request.args.get("last", 50)
    if not (key is None or isinstance(key, str)) or not isinstance(last, int) or last < 0:
        raise Declined("history takes a key (text) and the number of decisions to show (0 for all)")
    return key, last


class _Fixed:
    """Collector of ready-made families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def gather(texts: Mapping[str, str | None]) -> str:
    """Merge the expositions of all workers into one; None stands for a worker that did not answer.

    Families of the same name are merged and every sample gets a `worker` label, so that Prometheus sees one target per
    daemon. A worker that does not answer costs only its own samples, and shows as `holdfast_worker_up 0`.
    """
    families: dict[str, Metric] = {}
    up = GaugeMetricFamily("holdfast_worker_up", "Whether the worker answered the scrape.", labels=["worker"])
    for worker, text in texts.items():
        parsed = _families(text)
        up.add_metric([worker], 0 if parsed is None else 1)
        for family in parsed or ():
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            merged.samples.extend(_labelled(sample, worker) for sample in family.samples)
    return _exposition([*families.values(), up])


def of_report(found: DaemonReport) -> str:
    """Return the exposition of what the supervisor knows, available also when no worker answers."""
    restarts = CounterMetricFamily("holdfast_worker_restarts", "Restarts, by reason.", labels=["worker", "reason"])
    looping = GaugeMetricFamily("holdfast_worker_crash_looping", "Whether it is crash-looping.", labels=["worker"])
    overdue = GaugeMetricFamily("holdfast_resync_overdue", "Whether its audit is overdue.", labels=["worker"])
    waiting = GaugeMetricFamily(
        "holdfast_worker_waiting_seconds", "Time for which a dependency has been unreachable.", labels=["worker"]
    )
    refused = "Whether the daemon refused the last configuration that it was to reload."
    config = GaugeMetricFamily("holdfast_config_refused", refused, value=bool(found.config_refused))
    for worker in found.workers:
        for reason in RESTART_REASONS:
            restarts.add_metric([worker.name, reason], worker.restart_reasons.get(reason, 0))
        looping.add_metric([worker.name], worker.crash_looping)
        overdue.add_metric([worker.name], worker.verdict == "overdue")
        waiting.add_metric([worker.name], worker.waiting_s or 0.0)
    return _exposition([restarts, looping, overdue, waiting, config])


def _exposition(families: Iterable[Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    return generate_latest(registry).decode()


def _families(text: str | None) -> list[Metric] | None:
    """Parse an exposition; None for no answer, or an invalid one."""
    if text is None:
        return None
    try:
        return list(text_string_to_metric_families(text))
    except ValueError:
        return None


def _labelled(sample: Sample, worker: str) -> Sample:
    return Sample(sample.name, {**sample.labels, "worker": worker}, sample.value, sample.timestamp, sample.exemplar)
