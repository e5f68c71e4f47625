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
from typing import Any

from holdfast.agent.claims import Key, Shape
from holdfast.agent.dataplane.api import ClaimChange, Dataplane, Description
from holdfast.agent.gates.identity import Belonging
from holdfast.agent.journal import Journal
from holdfast.agent.reconciler import Around, Keeper
from holdfast.agent.report.worker import ROLE, SPEAKER, host_name
from holdfast.agent.store_addresses import WayToStore
from holdfast.agent.target import Kernel
from holdfast.agent.worker import following, journal_file, settings
from holdfast.config.root import Config
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.daemon.process import boot_id
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.intents.book import WishBook, Wishes
from holdfast.runtime.intents.commands import take_effect
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.paths import Paths
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Store


@dataclass
class Rehearsed:
    """A dataplane that reads another one and changes nothing."""

    real: Dataplane
    told: dict[Key, ClaimChange] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.real.name

    def ready(self) -> str | None:
        return None

    async def read(self, keys: Collection[Key] | None = None) -> Mapping[Key, Shape]:
        return await self.real.read(keys)

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        for change in changes:
            self.told.setdefault(change.key, change)  # as nothing is changed, it is told the same again
        return [None for _ in changes]

    def obstacle(self, key: Key, shape: Shape) -> str | None:
        return self.real.obstacle(key, shape)

    async def disturbed(self) -> Collection[Key] | None:
        await asyncio.Event().wait()
        return None

    def describe(self) -> Description:
        return self.real.describe()


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What would be done, in its order, and what would be held, as `holdfast plan` shows it."""

    changes: Sequence[ClaimChange]
    held: Sequence[dict[str, Any]]


async def rehearse(config: Config, store: Store, real: Dataplane, folder: Path) -> Rehearsal | None:
    """`folder` is for copies. None: the store has not said in time what is wanted."""
    paths = Paths(ROLE, Path(config.paths.runtime), Path(config.paths.state))
    for file in (journal_file(paths), StoreMemory(paths.state, ROLE).path):
        if file.exists():
            shutil.copy(file, folder)
    journal = Journal.open(folder / journal_file(paths).name, boot_id())
    plane, clock, way = Rehearsed(real), SystemClock(), WayToStore(config.store.endpoints)
    await way.look()
    source = following(config, store, clock)
    belonging = Belonging({source.name: StoreMemory(folder, ROLE)})
    around = Around(clock, Vitals(clock), DecisionLog(folder / "decisions", ROLE), WorkerMetrics())
    kernel = Kernel(journal, plane)
    keeper = Keeper(host_name(config), [source], kernel, belonging, around, settings(config, way))
    _heed(WishBook(paths, SPEAKER).wishes, keeper, clock)
    try:
        return await _played(keeper, plane, config)
    finally:
        around.decisions.close()
        journal.close()


def _heed(wishes: Wishes, keeper: Keeper, clock: Clock) -> None:
    """As the agent that would do it: what it was told to keep its hands off is not told as a change."""
    take_effect(wishes, clock, keeper.intent, keeper.reconciler.place.brake)
    for name in wishes.forgotten:
        keeper.sync.forget(name)


async def _played(keeper: Keeper, plane: Rehearsed, config: Config) -> Rehearsal | None:
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
    held = [one for one in keeper.reconciler.outstanding() if one["gate"]]
    return Rehearsal(sorted(plane.told.values(), key=_place), held)


async def _looked_at_everything(keeper: Keeper) -> None:
    """Until a whole comparison has been made by a keeper that knows whose store it follows, if it has one to follow."""
    passes: int | None = None
    while passes is None or keeper.reconciler.passes <= passes:
        known = not keeper.sync.sources or any(known.judgement for known in keeper.belonging.known.values())
        if passes is None and known:
            passes = keeper.reconciler.passes
            keeper.reconciler.dirty.mark_all()
        await asyncio.sleep(0.02)


def _place(change: ClaimChange) -> tuple[int, Key]:
    return change.op, change.key
