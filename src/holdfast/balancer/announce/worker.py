"""The announcer: a worker of its own that keeps the announced addresses as the outlook of the VIPs' keeper wants them.

It asks the keeper several times a second and never acts on old news: while the keeper does not answer, every address
stays as it is. In return it tells the keeper what is announced.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Gauge

from holdfast.balancer.announce.policy import KINDS, STALE_AFTER, AnnouncedAddress, AnnounceInput, AnnouncePolicy
from holdfast.balancer.announce.target import AddressTarget
from holdfast.balancer.reconciler import NAME as KEEPER
from holdfast.model.base.time import NEVER, Duration
from holdfast.netlink import ifaddr
from holdfast.netlink.socket import Netlink
from holdfast.reconcile import Away, Owned, PauseGate, Synced, SyncGate
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.outstanding import OutstandingChange
from holdfast.runtime.reconciler.place import LoopTimings, Place

log = structlog.get_logger(__name__)

NAME = "announce"
ANNOUNCE = Spec(NAME, "holdfast.balancer.announce.worker:announce")
OUTLOOK = "outlook"
"""The command that the keeper answers with an `AnnounceInput`."""
_ASK_EVERY = Duration(milliseconds=250)
_ASK_IDLE = Duration(seconds=1)
_ASK_TIMEOUT = 2.0
_FIRST_WORD = Duration(seconds=10)
_AUDIT = Duration(seconds=30)
"""The kernel tells of every change; this is for what it could not tell."""


class WantedAddresses:
    """The source: what the last outlook wants, as long as that is fresh."""

    def __init__(self, clock: Clock) -> None:
        self.known = AnnouncePolicy(AnnounceInput(NEVER))
        self._clock = clock
        self.heard = NEVER

    def hear(self, outlook: AnnounceInput) -> None:
        self.heard = self._clock.now()
        self.known.hear(outlook, self.heard)

    async def read(
        self, after: AnnouncedAddress | None, upto: AnnouncedAddress | None
    ) -> Sequence[tuple[AnnouncedAddress, Owned[None]]]:
        wanted = self._wanted()
        return [
            (spot, owned)
            for spot, owned in wanted.items()
            if (after is None or after < spot) and (upto is None or spot <= upto)
        ]

    async def get(self, keys: Collection[AnnouncedAddress]) -> Mapping[AnnouncedAddress, Owned[None]]:
        wanted = self._wanted()
        return {spot: wanted[spot] for spot in keys if spot in wanted}

    async def refresh(self) -> None:
        self._wanted()

    def _wanted(self) -> dict[AnnouncedAddress, Owned[None]]:
        if not self.heard or self._clock.now() - self.heard > STALE_AFTER:
            raise Away(KEEPER, "it does not say how the frontends are")
        revision = self.known.outlook.revision or 0
        return {spot: Owned(None, KEEPER, revision) for spot in self.known.wanted()}


class AnnounceMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._announced = Gauge(
            "holdfast_frontend_announced", "Whether its address is on its device.", ["frontend"], registry=registry
        )

    def show(self, frontends: Mapping[str, bool]) -> None:
        """By frontend whether it is announced. What is gone disappears."""
        self._announced.clear()
        for name, is_announced in frontends.items():
            self._announced.labels(frontend=name).set(is_announced)


class Announcer:
    def __init__(self, worker: Worker, addresses: AddressTarget) -> None:
        self._worker = worker
        self._addresses = addresses
        self._source = WantedAddresses(worker.clock)
        self._sync = SyncGate({KEEPER: Synced(worker.clock.now())})
        self._wanted: frozenset[AnnouncedAddress] = frozenset()
        self._metrics = AnnounceMetrics(worker.metrics.registry)
        intent: PauseGate[AnnouncedAddress] = PauseGate(NAME)
        self._reconciler: Reconciler[AnnouncedAddress, None] = Reconciler(
            Place(
                name=NAME,
                source=self._source,
                target=addresses,
                gates=(intent, self._source.known, self._sync),
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
        """Until told to stop. What is announced stays."""
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(), name="outlook")
            await self._first_word()
            with _events(self._reconciler.dirty.mark_all):
                await tasks.create_task(self._reconciler.run(self._worker.stopping), name="reconciler")
            listening.cancel()

    async def _first_word(self) -> None:
        """At a start the keeper is a moment behind; only if it stays away is that worth telling."""
        self._worker.vitals.state = f"waiting: {KEEPER}"
        began = self._worker.clock.now()
        while not self._source.heard and self._worker.clock.now() - began < _FIRST_WORD:
            if await self._worker.stopped(_ASK_EVERY):
                return

    async def _listen(self) -> None:
        while True:
            answer = await ask(self._worker.paths.socket(KEEPER), self._question(), timeout=_ASK_TIMEOUT)
            if not answer.error:
                self._hear(msgspec.convert(answer.result, AnnounceInput))
            idle = not self._source.known.outlook.stands and not self._addresses.held
            await asyncio.sleep((_ASK_IDLE if idle else _ASK_EVERY).total_seconds())

    def _question(self) -> Request:
        """Asks, and tells: what is announced, and what is in the way of what is not as wanted."""
        outstanding = self._reconciler.ledger
        obstacles = {one.change.key.host: _obstacle(self._reconciler.describe(one)) for one in outstanding}
        return Request(OUTLOOK, {"announced": [spot.host for spot in sorted(self._addresses.held)], "why": obstacles})

    def _hear(self, outlook: AnnounceInput) -> None:
        self._source.hear(outlook)
        known = self._sync.sources.get(KEEPER)
        if known is None or (known.revision, known.unreadable) != (outlook.revision, outlook.unreadable):
            self._sync.note_source(KEEPER, Synced(self._worker.clock.now(), outlook.revision, outlook.unreadable))
        wanted = frozenset(self._source.known.wanted())
        self._reconciler.dirty.mark(wanted ^ self._wanted)
        self._wanted = wanted
        self._source.known.forget(self._addresses.held)
        self._metrics.show({stand.frontend: stand.spot in self._addresses.held for stand in outlook.stands})


def _obstacle(outstanding: OutstandingChange) -> str:
    return f"{outstanding.why}; to release: {outstanding.opens}" if outstanding.opens else outstanding.why


@contextlib.contextmanager
def _events(tell: Callable[[], None]) -> Iterator[None]:
    """Tells whenever an address of this namespace has come or gone."""
    heard = Netlink(socket.NETLINK_ROUTE, ifaddr.GROUPS)

    def hear() -> None:
        try:
            list(heard.receive())
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # that one says that more has happened than there was room for
                raise
        tell()

    loop = asyncio.get_running_loop()
    loop.add_reader(heard, hear)
    try:
        yield
    finally:
        loop.remove_reader(heard)
        heard.close()


async def announce(worker: Worker) -> None:
    kind: str = worker.config.balancer.dataplane.kind
    if kind == "dry-run":
        worker.vitals.state = "nothing is announced with dry-run"
        await worker.stopping.wait()
        return
    with contextlib.closing(AddressTarget(worker.paths.state / "announced.json")) as addresses:
        await Announcer(worker, addresses).run()
