"""Announcer: a worker that reconciles the announced addresses with the state of the frontends.

It asks the VIP reconciler several times a second and never acts on a stale answer: while the VIP reconciler does not
answer, every address stays as it is. Each request carries a report of what is announced.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator, Mapping

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Gauge

from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.announce.policy import KINDS, AnnouncedAddress, AnnounceInput
from holdfast.balancer.announce.source import WantedAddresses
from holdfast.balancer.announce.target import AddressTarget
from holdfast.model.base.time import Duration
from holdfast.netlink import ifaddr
from holdfast.netlink.socket import Netlink
from holdfast.reconcile import PauseGate, Synced, SyncGate
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.outstanding import OutstandingChange
from holdfast.runtime.reconciler.place import LoopTimings, Place

log = structlog.get_logger(__name__)

NAME = "announce"
ANNOUNCE = Spec(NAME, "holdfast.balancer.announce.worker:announce")
ANNOUNCE_INPUT = "announce_input"
"""Command that the VIP reconciler answers with an `AnnounceInput`."""
_ASK_EVERY = Duration(milliseconds=250)
_ASK_IDLE = Duration(seconds=1)
_ASK_TIMEOUT = 2.0
_FIRST_ANSWER = Duration(seconds=10)
_AUDIT = Duration(seconds=30)
"""The kernel reports every change; this interval is for lost reports."""


class AnnounceMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._announced = Gauge(
            "holdfast_frontend_announced",
            "Whether the address of the frontend is on its device.",
            ["frontend"],
            registry=registry,
        )

    def show(self, frontends: Mapping[str, bool]) -> None:
        """Sets the gauge per frontend; frontends that are gone disappear."""
        self._announced.clear()
        for name, is_announced in frontends.items():
            self._announced.labels(frontend=name).set(is_announced)


class Announcer:
    def __init__(self, worker: Worker, addresses: AddressTarget) -> None:
        self._worker = worker
        self._addresses = addresses
        self._source = WantedAddresses(worker.clock)
        self._sync = SyncGate({VIPS_WORKER: Synced(worker.clock.now())})
        self._wanted: frozenset[AnnouncedAddress] = frozenset()
        self._metrics = AnnounceMetrics(worker.metrics.registry)
        intent: PauseGate[AnnouncedAddress] = PauseGate(NAME)
        self._reconciler: Reconciler[AnnouncedAddress, None] = Reconciler(
            Place(
                name=NAME,
                source=self._source,
                target=addresses,
                gates=(intent, self._source.policy, self._sync),
                kinds=KINDS,
                show=str,
                same=lambda _wanted, _held: True,
                quiet=("warm_up", "withdraw_delay"),
            ),
            worker.context,
            LoopTimings(audit=_AUDIT, recheck=Duration(milliseconds=500)),
        )
        IntentCommands(worker, self._reconciler, intent, self._sync).offer()

    async def run(self) -> None:
        """Runs until stopped. What is announced stays."""
        async with asyncio.TaskGroup() as tasks:
            polling = tasks.create_task(self._poll(), name="poll")
            await self._wait_for_first_answer()
            with _address_events(self._reconciler.dirty.mark_all):
                await tasks.create_task(self._reconciler.run(self._worker.stopping), name="reconciler")
            polling.cancel()

    async def _wait_for_first_answer(self) -> None:
        """Waits for the VIP reconciler, which starts a moment later; a longer absence is then shown as a failure."""
        self._worker.vitals.state = f"waiting: {VIPS_WORKER}"
        began = self._worker.clock.now()
        while not self._source.updated and self._worker.clock.now() - began < _FIRST_ANSWER:
            if await self._worker.stopped(_ASK_EVERY):
                return

    async def _poll(self) -> None:
        while True:
            answer = await ask(self._worker.paths.socket(VIPS_WORKER), self._request(), timeout=_ASK_TIMEOUT)
            if not answer.error:
                self._update(msgspec.convert(answer.result, AnnounceInput))
            idle = not self._source.policy.input.frontends and not self._addresses.held
            await asyncio.sleep((_ASK_IDLE if idle else _ASK_EVERY).total_seconds())

    def _request(self) -> Request:
        """Builds the request, which also reports what is announced and why the rest is outstanding."""
        outstanding = {one.change.key.host: _reason(self._reconciler.describe(one)) for one in self._reconciler.ledger}
        announced = [address.host for address in sorted(self._addresses.held)]
        return Request(ANNOUNCE_INPUT, {"announced": announced, "outstanding": outstanding})

    def _update(self, received: AnnounceInput) -> None:
        self._source.update(received)
        known = self._sync.sources.get(VIPS_WORKER)
        if known is None or (known.revision, known.unreadable) != (received.revision, received.unreadable):
            self._sync.note_source(
                VIPS_WORKER, Synced(self._worker.clock.now(), received.revision, received.unreadable)
            )
        wanted = frozenset(self._source.policy.wanted())
        self._reconciler.dirty.mark(wanted ^ self._wanted)
        self._wanted = wanted
        self._source.policy.forget(self._addresses.held)
        self._metrics.show({one.frontend: one.announced_address in self._addresses.held for one in received.frontends})


def _reason(outstanding: OutstandingChange) -> str:
    return f"{outstanding.why}. To release: {outstanding.opens}" if outstanding.opens else outstanding.why


@contextlib.contextmanager
def _address_events(on_event: Callable[[], None]) -> Iterator[None]:
    """Calls `on_event` whenever an address is added or removed in this network namespace."""
    events = Netlink(socket.NETLINK_ROUTE, ifaddr.GROUPS)

    def receive() -> None:
        try:
            list(events.receive())
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # events were lost, so something has changed
                raise
        on_event()

    loop = asyncio.get_running_loop()
    loop.add_reader(events, receive)
    try:
        yield
    finally:
        loop.remove_reader(events)
        events.close()


async def announce(worker: Worker) -> None:
    kind: str = worker.config.balancer.dataplane.kind
    if kind == "dry-run":
        worker.vitals.state = "dry-run announces nothing"
        await worker.stopping.wait()
        return
    with contextlib.closing(AddressTarget(worker.paths.state / "announced.json")) as addresses:
        await Announcer(worker, addresses).run()
