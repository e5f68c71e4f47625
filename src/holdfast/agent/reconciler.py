"""The keeper: keeps the kernel as the sources want it, through the one loop, and never forgets what it put there. Thin.

At the start the journal is read and nothing of it is programmed; nothing at all happens until a source has delivered a
complete list. Then what is stale, journal and kernel tags less what is wanted, goes like any other deletion: through
the gates, with the whole object, to every handler. A stop or a crash at any moment changes nothing of what is
remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import eq

import structlog

from holdfast.agent.claims import KINDS, Claim, ClaimKey
from holdfast.agent.desired.sources import PrecedenceGate, Sources
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.agent.gates.brake import AgentBrake
from holdfast.agent.gates.dependents import DependentsGate, Present
from holdfast.agent.gates.identity import StoreIdentityGate
from holdfast.agent.gates.readiness import HandlerReadyGate, InterfaceGate
from holdfast.agent.gates.store_path import HOLD_DOWN, StorePathGate
from holdfast.agent.journal.journal import JournalUnwritable, Offload
from holdfast.agent.metrics import AgentMetrics
from holdfast.agent.source import WantedClaims
from holdfast.agent.target import JournaledTarget
from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Away, BrakeLimits, Change, PauseGate, SyncGate
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place

log = structlog.get_logger(__name__)

NAME = "agent"
LOOK = Duration(seconds=5)
"""Between two looks at whose stores these are."""
TEND = Duration(seconds=1)
MANY = 2_000
"""Disturbed objects: with so many, everything is compared, which is done in pages, and surer."""
BREATH = Duration(milliseconds=100)
"""Between two repairs of what others keep breaking."""
_POLL = Duration(milliseconds=100)
_QUIET = ("footing",)


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """What can be configured of it."""

    limits: BrakeLimits = field(default_factory=BrakeLimits)
    hold_down: Duration = HOLD_DOWN
    pace: LoopTimings = field(default_factory=LoopTimings)
    stores: Callable[[], Collection[str]] = tuple
    """The addresses at which the store is reached now."""


class AgentReconciler:
    def __init__(
        self,
        host: str,
        followings: Sequence[SourceWatcher],
        kernel: JournaledTarget,
        belonging: StoreIdentityGate,
        context: Context,
        settings: ReconcilerSettings | None = None,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        """`followings` are in order of precedence."""
        self.followings = followings
        self.kernel = kernel
        self.belonging = belonging
        self.sync = SyncGate({following.name: following.synced for following in followings})
        belonging.counts = lambda name: name in self.sync.sources
        demands = {following.name: following.demand for following in followings}
        for name, demand in demands.items():
            demand.obstacle = kernel.dataplane.obstacle
            demand.holder = partial(self._holder, name)
        self.sources = Sources(host, demands, kernel.dataplane.describe().own)
        self.intent: PauseGate[ClaimKey] = PauseGate(NAME)
        self.metrics = AgentMetrics(context.metrics.registry)
        self._settings = settings or ReconcilerSettings()
        self._clock = context.clock
        self._vitals = context.vitals
        self._offload = offload
        self._compaction: asyncio.Task[None] | None = None
        self.reconciler: Reconciler[ClaimKey, Claim] = Reconciler(self._place(), context, self._settings.pace)

    @property
    def present(self) -> Present:
        """What may be in the kernel now."""
        return self.kernel.present

    def _place(self) -> Place[ClaimKey, Claim]:
        kernel, settings = self.kernel, self._settings
        remembered = kernel.remembered
        wanted = WantedClaims(self.sources, self.followings, self.sync, kernel.present, self._doubt, remembered)
        return Place(
            name=NAME,
            source=wanted,
            target=kernel,
            gates=(
                self.intent,
                self.belonging,
                self.sync,
                PrecedenceGate(tuple(self.sources.demands), self.sync),
                HandlerReadyGate(kernel.handlers),
                InterfaceGate(kernel.dataplane),
                DependentsGate(kernel.present),
                StorePathGate(kernel.present, settings.stores, settings.hold_down),
            ),
            kinds=KINDS,
            show=str,
            same=eq,
            brake=AgentBrake(f"{NAME}/brake", KINDS, settings.limits, self._is_allowed),
            feed=wanted,
            quiet=_QUIET,
            read_back=False,  # every handler answers for every object by itself
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop. What is programmed stays, and so does what is remembered."""
        async with asyncio.TaskGroup() as tasks:
            beside = [
                *(tasks.create_task(each.run(self._wake), name=f"follow {each.name}") for each in self.followings),
                tasks.create_task(self._watch_identity(), name="identity"),
                tasks.create_task(self._watch_kernel(), name="kernel"),
                tasks.create_task(self._tend(), name="tend"),
            ]
            await self._first_list(stopping)
            await tasks.create_task(self.reconciler.run(stopping), name="reconciler")
            for task in beside:
                task.cancel()
        await self._end_compaction()

    def kept(self) -> Mapping[str, int]:
        """Of each source, how many peers have something in the kernel."""
        owners = {(owned.source, owned.value.owner.host) for owned in self.present.claims.values()}
        return Counter(source for source, host in owners if host != self.sources.host)

    def measure(self, now: Instant) -> None:
        """Brings the gauges up to date."""
        metrics, deletions = self.metrics, self.kernel.deletions
        hosts = {owned.value.owner.host for owned in self.present.claims.values()}
        metrics.peers.labels(state="wanted").set(self.sources.peers())
        metrics.peers.labels(state="programmed").set(len(hosts - {"", self.sources.host}))
        metrics.claims.clear()
        for sort, count in Counter(KINDS.of(key) for key in self.present).items():
            metrics.claims.labels(sort=sort).set(count)
        metrics.journal_bytes.set(self.kernel.journal.size)
        metrics.pending_deletes.set(len(deletions))
        begun = [story.since for key in deletions if (story := self.reconciler.ledger.outstanding(key)) is not None]
        metrics.oldest_delete.set((now - min(begun)).total_seconds() if begun else 0)
        metrics.disputes.set(len(self.sources.disputes()))
        metrics.show_sources(self.sync.sources)

    async def _first_list(self, stopping: asyncio.Event) -> None:
        """N12: however long it takes. Without any complete list there is nothing to add and nothing may go."""
        await self._look_around()
        log.info(f"remembers {len(self.present):,} objects; nothing is touched before a source has spoken")
        while not stopping.is_set():
            await self.reconciler.place.source.get(())
            if self.sources.complete or not self.sync.sources:  # an operator may have forgotten them all
                return
            self._vitals.attempted(success=True, state="waiting: a complete list")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL.total_seconds()):
                    await stopping.wait()

    async def _look_around(self) -> None:
        """What is kept meanwhile can then be told; a kernel that does not answer yet is asked again later."""
        try:
            await self.kernel.read(None)
        except Away as away:
            log.warning(f"the kernel cannot be read yet: {away}")

    def _is_allowed(self, change: Change[ClaimKey, Claim]) -> bool:
        owner = change.owner.source
        return any(following.name == owner and following.is_allowed(change) for following in self.followings)

    def _holder(self, source: str, key: ClaimKey) -> str:
        """The endpoint of that source that has it."""
        owned = self.kernel.holder(key)
        return owned.value.owner.endpoint if owned is not None and owned.source == source else ""

    def _doubt(self, source: str) -> None:
        self.belonging.doubt(source, self._clock.now())

    def _wake(self) -> None:
        self.reconciler.dirty.wake()

    async def _watch_identity(self) -> None:
        while True:
            self.belonging.doubted.clear()
            if await self.belonging.look(self.followings, self._clock.now()):
                self.reconciler.dirty.mark_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK.total_seconds()):  # Python 3.11's wait_for can swallow a stop
                    await self.belonging.doubted.wait()

    async def _watch_kernel(self) -> None:
        """A disturbance is repaired at once. Somebody who disturbs without end gets a repair every `BREATH`, with all
        that has come together meanwhile; where everything must be compared, half of our time and not all of it."""
        while True:
            disturbed = await self.kernel.dataplane.disturbed()
            pause = BREATH
            if disturbed is None or len(disturbed) > MANY:
                self.metrics.disturbed.inc()
                self.reconciler.dirty.mark_all()
                pause = max(BREATH, self.reconciler.pass_took)
            else:
                self.reconciler.dirty.mark(disturbed)
            await asyncio.sleep(pause.total_seconds())

    async def _tend(self) -> None:
        """What no event tells: a bad value that went away, a journal that has grown."""
        while True:
            await asyncio.sleep(TEND.total_seconds())
            self._wake()
            if self.kernel.journal.wants_compaction and self._compaction is None:
                self._compaction = asyncio.create_task(self._compact(), name="compaction")

    async def _compact(self) -> None:
        try:
            await self.kernel.journal.compact(self._offload)
        except JournalUnwritable as sentence:
            log.error(str(sentence))
        finally:
            self._compaction = None

    async def _end_compaction(self) -> None:
        task = self._compaction
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
