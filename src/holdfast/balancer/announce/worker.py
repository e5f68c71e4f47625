"""Announcer: a worker that reconciles the announced addresses with the state of the frontends.

It asks the VIP reconciler several times a second and never acts on a stale answer: while the VIP reconciler does not
answer, every address stays as it is. Each request carries a report of what is announced.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.announce.policy import AnnounceInput
from holdfast.balancer.announce.reconciler import NAME, AnnounceReconciler
from holdfast.balancer.announce.target import AddressTarget
from holdfast.model.base.time import Duration
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.intents.store import FileIntents
from holdfast.runtime.tasks import until_first

ANNOUNCE = Spec(NAME, "holdfast.balancer.announce.worker:announce")
ANNOUNCE_INPUT = "announce_input"
"""Command that the VIP reconciler answers with an `AnnounceInput`."""
_ASK_EVERY = Duration(milliseconds=250)
_ASK_IDLE = Duration(seconds=1)
_ASK_TIMEOUT = 2.0
_FIRST_ANSWER = Duration(seconds=10)


class AnnounceMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._announced = Gauge(
            "holdfast_frontend_announced",
            "Whether the address of the frontend is on its device.",
            ["frontend"],
            registry=registry,
        )

    def show(self, frontends: Mapping[str, bool]) -> None:
        """Set the gauge per frontend; frontends that are gone disappear."""
        self._announced.clear()
        for name, is_announced in frontends.items():
            self._announced.labels(frontend=name).set(is_announced)


class Announcer:
    def __init__(self, worker: Worker, addresses: AddressTarget) -> None:
        self._worker = worker
        self._addresses = addresses
        self._metrics = AnnounceMetrics(worker.metrics.registry)
        intents, here = FileIntents(worker.paths, worker.name, worker.clock), Scope(ScopeKind.WORKER, worker.name)
        self._reconciler = one = AnnounceReconciler(addresses, worker.context, intents.all)
        worker.handlers |= IntentCommands(worker.context, one.loop, one.intents, one.sync, here, intents).handlers()

    async def run(self) -> None:
        """Run until stopped. What is announced stays."""
        await until_first({"poll": self._poll(), "reconciler": self._reconcile()})

    async def _reconcile(self) -> None:
        await self._wait_for_first_answer()
        await self._reconciler.run(self._worker.stopping)

    async def _wait_for_first_answer(self) -> None:
        """Wait for the VIP reconciler, which starts a moment later; a longer absence is then shown as a failure."""
        self._worker.vitals.state = f"waiting: {VIPS_WORKER}"
        began = self._worker.clock.now()
        while not self._reconciler.source.updated and self._worker.clock.now() - began < _FIRST_ANSWER:
            if await self._worker.stopped(_ASK_EVERY):
                return

    async def _poll(self) -> None:
        while True:
            answer = await ask(self._worker.paths.socket(VIPS_WORKER), self._request(), timeout=_ASK_TIMEOUT)
            if not answer.error:
                self._update(msgspec.convert(answer.result, AnnounceInput))
            idle = not self._reconciler.source.policy.input.frontends and not self._addresses.held
            await asyncio.sleep((_ASK_IDLE if idle else _ASK_EVERY).total_seconds())

    def _request(self) -> Request:
        """Build the request, which also reports what is announced and why the rest is outstanding."""
        announced = [address.host for address in sorted(self._addresses.held)]
        return Request(ANNOUNCE_INPUT, {"announced": announced, "outstanding": self._reconciler.outstanding()})

    def _update(self, received: AnnounceInput) -> None:
        self._reconciler.update(received)
        self._metrics.show({one.frontend: one.announced_address in self._addresses.held for one in received.frontends})


async def announce(worker: Worker) -> None:
    kind: str = worker.config.balancer.dataplane.kind
    if kind == "dry-run":
        worker.vitals.state = "dry-run announces nothing"
        await worker.stopping.wait()
        return
    with contextlib.closing(AddressTarget(worker.paths.state / "announced.json")) as addresses:
        await Announcer(worker, addresses).run()
