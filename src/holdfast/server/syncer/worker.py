"""The syncer worker: works while its server leads, waits and says so while it does not, and answers `resync`.

Without `inventory.database` there is nothing to sync, and it says that.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, NoReturn

import structlog

from holdfast.inventory.open import configured_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.inventory.sql.wake import waker
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration
from holdfast.model.control.leader import LEADER
from holdfast.reconcile import Away, PauseGate
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import StoreMemory
from holdfast.server.election.leadership import Leading, while_leading
from holdfast.server.election.worker import leadership, server_name
from holdfast.server.intents.pause import PauseCommands
from holdfast.server.intents.store import EtcdIntents
from holdfast.server.syncer.allow import AllowCommands
from holdfast.server.syncer.explain import ExplainCommands
from holdfast.server.syncer.held import HeldCommands
from holdfast.server.syncer.resync import Resync
from holdfast.server.syncer.term import NAME, Surroundings, begin
from holdfast.store.api import StoreError

log = structlog.get_logger(__name__)

_OVERDUE = 74
_IDLE = Duration(seconds=1)
_COMMANDS = ("allow", "forget", "held", "sync", "resync")


class _Nothing:
    """The backlog of a follower: none of its business."""

    def backlog(self) -> int:
        return 0

    def oldest(self) -> Any:
        return NEVER


class SyncerJob:
    def __init__(self, worker: Worker, around: Surroundings) -> None:
        self._worker = worker
        self._around = around
        self._leader_key = LEADER.key(around.region, "leader")
        self._pausing = PauseCommands(
            EtcdIntents(around.store, around.region, around.clock), around.clock, around.decisions
        )
        self._explaining = ExplainCommands(around)
        self._follow()

    async def run(self) -> None:
        following = asyncio.create_task(self._show_following(), name="following")
        try:
            await while_leading(self._around.leadership, self._reign, self._worker.stopping, die=_die)
        finally:
            following.cancel()

    async def _reign(self, leading: Leading) -> None:
        try:
            confirmed = await self._around.leadership.confirm(self._around.store, self._leader_key)
        except (Away, StoreError) as error:
            self._worker.vitals.attempted(success=False, state="waiting: store")
            log.debug(f"the term cannot be confirmed: {error}")
            return
        if not isinstance(confirmed, Leading) or confirmed.term != leading.term:
            return
        try:
            reign = await begin(self._around, confirmed)
            self._pausing.hear, self._explaining.reign = reign.hear, reign
            IntentCommands(self._worker, reign.reconciler, PauseGate(NAME), reign.sync).offer()
            self._worker.handlers |= self._pausing.handlers()
            self._worker.handlers["resync"] = Resync(reign).answer
            self._worker.handlers["held"] = HeldCommands(reign, self._worker.handlers["held"]).answer
            self._worker.handlers["allow"] = AllowCommands(reign, self._worker.handlers["allow"]).answer
            await reign.run(self._worker.stopping)
        finally:
            self._follow()

    def _follow(self) -> None:
        vitals = self._worker.vitals
        vitals.consumes(_Nothing())
        vitals.audit = NEVER
        vitals.state = "following"
        self._around.figures.outbox.set(0)
        declined: Handler = self._declined
        self._worker.handlers.update(dict.fromkeys(_COMMANDS, declined))
        self._pausing.hear, self._explaining.reign = None, None
        self._worker.handlers |= {**self._pausing.handlers(), "explain": self._explaining.answer}

    async def _show_following(self) -> None:
        """A follower has nothing to do, and does it well."""
        while not await self._worker.stopped(_IDLE):
            if not isinstance(self._around.leadership.check(), Leading):
                self._worker.vitals.attempted(success=True, state="following")

    async def _declined(self, _request: Request, _who: Who) -> Any:
        raise Declined(
            f"{server_name(self._worker)} does not lead, so its syncer is idle; holdfast leader tells who does"
        )


def _die(why: str) -> NoReturn:
    log.error(why)
    os._exit(_OVERDUE)


async def run(worker: Worker) -> None:
    if worker.config.inventory.database is None:
        await _idle(worker)
        return
    engine = configured_engine(worker.config.inventory)
    store, aside, ear = open_store(worker.config.store), DatabaseThread(NAME), waker(engine)
    around = Surroundings(
        store=store,
        inventory=SqlInventory(engine),
        aside=aside,
        waker=ear,
        clock=worker.clock,
        region=Region(worker.config.store.region or ""),
        leadership=leadership(worker),
        vitals=worker.vitals,
        metrics=worker.metrics,
        decisions=worker.decisions,
        remembered=StoreMemory(worker.paths.state, "server").recall,
        poll_every=worker.config.inventory.poll_every,
        resync_interval=worker.config.inventory.resync_interval,
    )
    try:
        await SyncerJob(worker, around).run()
    finally:
        await ear.close()
        await store.close()
        aside.close()
        engine.dispose()


async def _no_inventory(_request: Request, _who: Who) -> Any:
    raise Declined("this server has no inventory, so there is nothing to sync: set inventory.database")


async def _idle(worker: Worker) -> None:
    worker.handlers |= dict.fromkeys((*_COMMANDS, "pause", "resume", "explain"), _no_inventory)
    while not await worker.stopped(_IDLE):
        worker.vitals.attempted(success=True, state="idle: inventory.database is not set")
