"""Dry run: what this host's agent would change now, computed by the shipped reconciler without changing anything.

It reads the store, the kernel and the operators' intents (pause, allow, forget) for real, works on copies of the
journal and of the store memory, and its dataplane only records changes. It may run beside a running agent.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.agent import PEERS_WORKER, ROLE, host_name
from holdfast.agent.claims import ClaimKey, Shape
from holdfast.agent.dataplane.api import ClaimChange, HostDataplane, HostDataplaneInfo
from holdfast.agent.journal import Journal
from holdfast.agent.reconciler import AgentReconciler, reconciler_settings
from holdfast.agent.store_addresses import StoreAddresses
from holdfast.agent.target import JournaledTarget
from holdfast.agent.tunnels import OwnTunnels
from holdfast.agent.worker import journal_file, source_watcher
from holdfast.config.root import Config
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.process import boot_id
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.intents.commands import forgotten
from holdfast.runtime.intents.store import FileIntents
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.paths import RolePaths
from holdfast.runtime.reconciler.outstanding import OutstandingChange
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Store


@dataclass
class ReadOnlyDataplane:
    """Reads another dataplane, and records changes instead of making them."""

    real: HostDataplane
    changes: dict[ClaimKey, ClaimChange] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.real.name

    def ready(self) -> str | None:
        return None

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        return await self.real.read(keys)

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        for change in changes:
            self.changes.setdefault(change.key, change)  # nothing is changed, so the same change comes again
        return [None for _ in changes]

    def blocked_by(self, key: ClaimKey, shape: Shape) -> str | None:
        return self.real.blocked_by(key, shape)

    def routes_in(self, table: int) -> Set[ClaimKey]:
        return self.real.routes_in(table)

    async def disturbed(self) -> Collection[ClaimKey] | None:
        await asyncio.Event().wait()
        return None

    def describe(self) -> HostDataplaneInfo:
        return self.real.describe()


@dataclass(frozen=True, slots=True)
class DryRunPlan:
    """Changes in their order, and held changes, as `holdfast plan` shows them."""

    changes: Sequence[ClaimChange]
    held: Sequence[OutstandingChange]


async def dry_run(
    config: Config, store: Store, real: HostDataplane, folder: Path, tunnels: OwnTunnels
) -> DryRunPlan | None:
    """Compute the plan, with copies in `folder`; `real` asks `tunnels` for the addresses of this host. None: the store
    did not deliver a complete list in time."""
    paths = RolePaths(ROLE, Path(config.paths.runtime), Path(config.paths.state))
    for file in (journal_file(paths), StoreMemory(paths.state, ROLE).path):
        if file.exists():
            shutil.copy(file, folder)
    journal = Journal.open(folder / journal_file(paths).name, boot_id())
    dataplane, clock, store_addresses = ReadOnlyDataplane(real), SystemClock(), StoreAddresses(config.store.endpoints)
    await store_addresses.resolve()
    target = JournaledTarget(journal, dataplane)
    source = source_watcher(config, store, clock, target, tunnels)
    context = Context(clock, Vitals(clock), DecisionLog(folder / "decisions", ROLE), WorkerMetrics())
    memories = {source.name: StoreMemory(folder, ROLE)}
    settings = reconciler_settings(config, store_addresses.addresses)
    intents = FileIntents(paths, PEERS_WORKER, clock)  # a paused agent would change nothing
    reconciler = AgentReconciler(
        host_name(config), [source], target, memories, context, settings, own_intents=intents.all
    )
    for name in forgotten(intents):
        reconciler.sync_gate.forget(name)
    try:
        return await _run_once(reconciler, dataplane, config)
    finally:
        context.decisions.close()
        journal.close()


async def _run_once(reconciler: AgentReconciler, dataplane: ReadOnlyDataplane, config: Config) -> DryRunPlan | None:
    stopping = asyncio.Event()
    running = asyncio.create_task(reconciler.run(stopping))
    try:
        async with asyncio.timeout(4 * config.store.call_deadline.total_seconds()):
            await _compared_everything(reconciler)
    except TimeoutError:
        return None
    finally:
        stopping.set()
        await running
    held = [one for one in reconciler.loop.outstanding() if one.gate]
    return DryRunPlan(sorted(dataplane.changes.values(), key=_order), held)


async def _compared_everything(reconciler: AgentReconciler) -> None:
    """Wait for one full comparison that began after the identity of the store, if it has one, was known."""
    passes: int | None = None
    while passes is None or reconciler.loop.passes <= passes:
        verdicts = reconciler.identity_gate.verdicts().values()
        if passes is None and (not reconciler.sync_gate.sources or any(verdicts)):
            passes = reconciler.loop.passes
            reconciler.loop.dirty.mark_all()
        await asyncio.sleep(0.02)


def _order(change: ClaimChange) -> tuple[int, ClaimKey]:
    return change.op, change.key
