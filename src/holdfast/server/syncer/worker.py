"""Syncer worker: syncs the inventory into the store while its server leads.

Without `inventory.database` there is nothing to sync; the worker is idle and says so.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import structlog

from holdfast.inventory.open import open_backend
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.model.base.region import configured_region
from holdfast.reconcile import Away
from holdfast.runtime.control import Handler, Request, Who
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.intents.etcd import SYNCER, server_intents
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import StoreMemory
from holdfast.server import server_name
from holdfast.server.election.leadership import Leadership, Leading
from holdfast.server.election.trial import DatabaseTrial
from holdfast.server.identity.gate import IDENTITY_CELL, IdentityCell
from holdfast.server.leader_work import LeaderWork, idle_without_inventory
from holdfast.server.syncer.adopt import AdoptCommands, report_progress
from holdfast.server.syncer.allow import AllowCommands, RevokeCommands
from holdfast.server.syncer.explain import ExplainCommands
from holdfast.server.syncer.held import HeldCommands
from holdfast.server.syncer.resync import Resync
from holdfast.server.syncer.term import NAME, Syncer
from holdfast.store.api import StoreError

log = structlog.get_logger(__name__)

_COMMANDS = ("adopt", "allow", "revoke", "forget", "held", "sync", "resync")


class SyncerWorker(LeaderWork):
    """Also tries the database, for the whole server, on leader and follower alike (C45)."""

    def __init__(self, worker: Worker, syncer: Syncer, trial: DatabaseTrial) -> None:
        self._trial = trial  # the frame asks for the follower's state at once
        super().__init__(
            worker,
            syncer.leadership,
            syncer.store,
            syncer.region,
            SYNCER,
            syncer.intents,
            commands=_COMMANDS,
            on_follower="is idle",
        )
        self._syncer = syncer

    async def begin(self, leading: Leading) -> Coroutine[Any, Any, None] | None:
        try:
            if not await self.is_confirmed(leading):
                return None
        except (Away, StoreError) as error:
            self.worker.vitals.attempted(success=False, state="waiting: store")
            log.debug("cannot confirm the term; retrying", term=leading.term, error=str(error))
            return None
        term = await self._syncer.begin(leading)
        handlers = self.worker.handlers
        handlers |= IntentCommands(
            self.worker.context, term.reconciler, term.applied, term.sync, SYNCER, self.intents
        ).handlers()
        handlers["resync"] = Resync(term).answer
        handlers["held"] = HeldCommands(term, handlers["held"]).answer
        handlers["allow"] = AllowCommands(term, handlers["allow"]).answer
        handlers["revoke"] = RevokeCommands(term, handlers["revoke"]).answer
        handlers["adopt"] = AdoptCommands(term).answer
        handlers["explain"] = ExplainCommands(self._syncer, term).answer
        return term.run(self.worker.stopping)

    def always(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"database": self._trial.run()}

    def follower_state(self) -> str:
        return self._trial.state.value

    def follower_handlers(self) -> Mapping[str, Handler]:
        return {"explain": ExplainCommands(self._syncer).answer, "adopt": self._report_adoption}

    async def _report_adoption(self, request: Request, who: Who) -> Any:
        """An adoption ends its term's work, which begins again a moment later: until then the worker follows."""
        return await (report_progress(self._syncer) if request.args.get("progress") else self._decline(request, who))

    def clear_metrics(self) -> None:
        self._syncer.metrics.clear()


async def run(worker: Worker) -> None:
    if worker.config.inventory.database is None:
        await idle_without_inventory(worker, (*_COMMANDS, "pause", "resume", "explain"))
        return
    region = configured_region(worker.config)
    backend = open_backend(worker.config.inventory, region)
    store, thread, wake = open_store(worker.config.store), DatabaseThread(NAME), backend.waker()
    worker.metrics.follow(store.contact, worker.clock.now)
    trying = DatabaseThread("database-trial")  # of its own: a resync occupies the other one for long
    trial = DatabaseTrial(lambda: trying(lambda: backend.try_write(server_name(worker))))
    seen_store = StoreMemory(worker.paths.state, "server").load
    syncer = Syncer(
        context=worker.context,
        store=store,
        region=region,
        inventory=backend.inventory(),
        run_in_thread=thread,
        waker=wake,
        leadership=Leadership.of(worker),
        seen_store=seen_store,
        intents=server_intents(store, region, worker.clock, worker.paths.state, SYNCER, seen_store),
        identity_cell=worker.board.cell(IDENTITY_CELL, IdentityCell),
        poll_every=worker.config.inventory.poll_every,
        resync_interval=worker.config.inventory.resync_interval,
    )
    try:
        await SyncerWorker(worker, syncer, trial).run()
    finally:
        await wake.close()
        await store.close()
        thread.close()
        trying.close()
        backend.close()
