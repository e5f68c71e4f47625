"""A rehearsal: what this host's agent would change now, found out by the shipped keeper, and nothing is changed.

It reads the store, the kernel and what operators asked for (pause, allow, forget) for real, works on copies of the
journal and of what is remembered of the store, and its kernel only writes down what it is told. It can be had beside an
agent that runs.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.agent.claims import ClaimKey, Shape
from holdfast.agent.dataplane.api import ClaimChange, HostDataplane, HostDataplaneInfo
from holdfast.agent.gates.identity import StoreIdentityGate
from holdfast.agent.journal import Journal
from holdfast.agent.reconciler import AgentReconciler
from holdfast.agent.report.worker import ROLE, SPEAKER, host_name
from holdfast.agent.store_addresses import StoreAddresses
from holdfast.agent.target import JournaledTarget
from holdfast.agent.worker import following, journal_file, settings
from holdfast.config.root import Config
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.process import boot_id
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.intents.book import IntentFile, WorkerIntents
from holdfast.runtime.intents.commands import apply_intents
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.paths import RolePaths
from holdfast.runtime.reconciler.outstanding import OutstandingChange
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Store


@dataclass
class ReadOnlyDataplane:
    """A dataplane that reads another one and changes nothing."""

    real: HostDataplane
    told: dict[ClaimKey, ClaimChange] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.real.name

    def ready(self) -> str | None:
        return None

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        return await self.real.read(keys)

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        for change in changes:
            self.told.setdefault(change.key, change)  # as nothing is changed, it is told the same again
        return [None for _ in changes]

    def obstacle(self, key: ClaimKey, shape: Shape) -> str | None:
        return self.real.obstacle(key, shape)

    async def disturbed(self) -> Collection[ClaimKey] | None:
        await asyncio.Event().wait()
        return None

    def describe(self) -> HostDataplaneInfo:
        return self.real.describe()


@dataclass(frozen=True, slots=True)
class DryRunPlan:
    """What would be done, in its order, and what would be held, as `holdfast plan` shows it."""

    changes: Sequence[ClaimChange]
    held: Sequence[OutstandingChange]


async def rehearse(config: Config, store: Store, real: HostDataplane, folder: Path) -> DryRunPlan | None:
    """`folder` is for copies. None: the store has not said in time what is wanted."""
    paths = RolePaths(ROLE, Path(config.paths.runtime), Path(config.paths.state))
    for file in (journal_file(paths), StoreMemory(paths.state, ROLE).path):
        if file.exists():
            shutil.copy(file, folder)
    journal = Journal.open(folder / journal_file(paths).name, boot_id())
    plane, clock, way = ReadOnlyDataplane(real), SystemClock(), StoreAddresses(config.store.endpoints)
    await way.look()
    source = following(config, store, clock)
    belonging = StoreIdentityGate({source.name: StoreMemory(folder, ROLE)})
    context = Context(clock, Vitals(clock), DecisionLog(folder / "decisions", ROLE), WorkerMetrics())
    kernel = JournaledTarget(journal, plane)
    keeper = AgentReconciler(host_name(config), [source], kernel, belonging, context, settings(config, way))
    _heed(IntentFile(paths, SPEAKER).intents, keeper, clock)
    try:
        return await _played(keeper, plane, config)
    finally:
        context.decisions.close()
        journal.close()


def _heed(wishes: WorkerIntents, keeper: AgentReconciler, clock: Clock) -> None:
    """As the agent that would do it: what it was told to keep its hands off is not told as a change."""
    apply_intents(wishes, clock, keeper.intent, keeper.reconciler.place.brake)
    for name in wishes.forgotten:
        keeper.sync.forget(name)


async def _played(keeper: AgentReconciler, plane: ReadOnlyDataplane, config: Config) -> DryRunPlan | None:
    stopping = asyncio.Event()
    playing = asyncio.create_task(keeper.run(stopping))
    try:
        async with asyncio.timeout(4 * config.store.call_deadline.total_seconds()):
            await _looked_at_everything(keeper)
    except TimeoutError:
        return None
    finally:
        stopping.set()
        await playing
    held = [one for one in keeper.reconciler.outstanding() if one.gate]
    return DryRunPlan(sorted(plane.told.values(), key=_place), held)


async def _looked_at_everything(keeper: AgentReconciler) -> None:
    """Until a whole comparison has been made by a keeper that knows whose store it follows, if it has one to follow."""
    passes: int | None = None
    while passes is None or keeper.reconciler.passes <= passes:
        known = not keeper.sync.sources or any(known.judgement for known in keeper.belonging.known.values())
        if passes is None and known:
            passes = keeper.reconciler.passes
            keeper.reconciler.dirty.mark_all()
        await asyncio.sleep(0.02)


def _place(change: ClaimChange) -> tuple[int, ClaimKey]:
    return change.op, change.key
