"""Status workers, `agent-status` and `endpoint-status`: a warm mirror always, and a term's work while the server leads.

Nothing is written before the syncer of this server has found that inventory and store belong together (C27) and has
raised the inventory's fence, nor while that is in doubt (C61).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import structlog

from holdfast.inventory.api import Fence
from holdfast.inventory.open import NotifyArrival, open_backend
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.inventory.sql.wake import Waker
from holdfast.model.base.region import configured_region
from holdfast.model.base.time import NEVER, Duration
from holdfast.model.control.leader import LEADER
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.observed import ENDPOINT
from holdfast.reconcile import Away, PauseGate
from holdfast.runtime.config_file import read_secret
from holdfast.runtime.control import Handler, Request, Who
from holdfast.runtime.daemon.waiting import Waiting
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.commands import APPLIED_WITHIN
from holdfast.runtime.intents.etcd import server_intents
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import StoreMemory
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import Leadership, Leading
from holdfast.server.identity.gate import IDENTITY_CELL, IdentityCell, StatusIdentityGate
from holdfast.server.identity.verdict import OPENS, FleetIdentityReason
from holdfast.server.leader_work import LeaderWork
from holdfast.server.status.commands import StatusCommands
from holdfast.server.status.feed import follow
from holdfast.server.status.kinds import StatusKind
from holdfast.server.status.metrics import StatusMetrics
from holdfast.server.status.migration_notices import MigrationMetrics, MigrationNotices, counted
from holdfast.server.status.rules.staleness import Staleness
from holdfast.server.status.term import StatusTerm
from holdfast.server.webhook import Webhook
from holdfast.store.api import Deposed, OwnKey, Store, StoreError

log = structlog.get_logger(__name__)

_RETRY = Duration(seconds=1)
_FENCE_POLL_S = 0.1
"""Interval at which a new leader's status worker asks whether the syncer has raised the fence."""
_DRAIN_S = 0.05
_CATCH_UP = Duration(seconds=10)
_COMMANDS = ("allow", "held", "sync", "forget", "explain", "orphans")


class StatusWorker(LeaderWork):
    def __init__(
        self,
        worker: Worker,
        kind: StatusKind[Any, Any],
        store: Store,
        waker: Waker,
        notify_arrival: NotifyArrival | None = None,
    ) -> None:
        rules = kind.rules
        scope, leadership = Scope(ScopeKind.WORKER, rules.name), Leadership.of(worker)
        state = worker.paths.state
        intents = server_intents(store, rules.region, worker.clock, state, scope, StoreMemory(state, "server").load)
        super().__init__(
            worker,
            leadership,
            store,
            rules.region,
            scope,
            intents,
            commands=_COMMANDS,
            on_follower="only watches",
        )
        self._kind = kind
        self._region = rules.region
        self._waker = waker
        self._notify_arrival = notify_arrival
        self._identity = worker.board.cell(IDENTITY_CELL, IdentityCell)
        self._metrics = StatusMetrics(worker.metrics.registry)
        self._migration_metrics = MigrationMetrics(worker.metrics.registry) if rules.kind == ENDPOINT else None
        self._staleness = Staleness(worker.config.status.stale_after, worker.config.status.warn_every)
        self._draining = asyncio.Lock()
        self._waiting = Waiting(worker.clock)
        self._doubted = NEVER
        """Time at which a term could last not begin because the identity of the store was in doubt."""
        self._gate: StatusIdentityGate | None = None

    def always(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"mirror": follow(self._kind.mirror, self._kind.rules.name)}

    async def begin(self, leading: Leading) -> Coroutine[Any, Any, None] | None:
        fence = await self._wait_fence(leading)
        if fence is None:
            return None
        async with self._draining:  # the follower's drain must be over before changes count
            log.info("status term begins", term=fence.term, epoch=fence.epoch, **self._waiting.end())
        term: StatusTerm[Any, Any] = StatusTerm(
            self.worker.context,
            self._kind,
            fence,
            waker=self._waker,
            leadership=self.leadership,
            metrics=self._metrics,
            staleness=self._staleness,
            audit_every=self.worker.config.status.audit_every,
            poll_every=self.worker.config.inventory.poll_every,
            identity=self._identity_gate(fence),
            confirm=None if self._kind.observed.is_fenced else partial(self._confirm, leading),
        )
        applied = AppliedIntents(self.worker.context, term.reconciler, term.pause, self.intents.all)
        notices = self._notices(fence, term.pause)
        self.worker.handlers |= StatusCommands(self.worker, term, applied, self.intents, notices).handlers()
        stopping = self.worker.stopping
        works = {
            "term": term.run(stopping),
            "intents": self._apply_periodically(applied),
            "identity": self._until_identity_changes(fence),
        }
        if notices is not None:
            works["notices"] = notices.run(stopping)
        return until_first(works)

    async def _confirm(self, leading: Leading) -> None:
        """Confirm the term with the store, just before a write that no fence covers. Raises `Deposed` or `Away`."""
        try:
            is_ours = await self.is_confirmed(leading)
        except StoreError as error:
            raise Away("store", str(error)) from error
        if not is_ours:
            raise Deposed(f"term {leading.term} is over; nothing was written into the inventory")

    def _identity_gate(self, fence: Fence) -> StatusIdentityGate:
        """The gate of a new term, which knows when the identity was last in doubt, in this term or before it."""
        before = self._gate.doubted if self._gate is not None else NEVER
        self._gate = StatusIdentityGate(self._identity, fence, max(before, self._doubted))
        return self._gate

    def _notices(self, fence: Fence, pause: PauseGate[bytes]) -> MigrationNotices | None:
        """The notifications of migrations: of the endpoints' worker, through the inventory or a webhook."""
        notify = self._notify_arrival or self._webhook()
        if notify is None or self._migration_metrics is None:
            return None
        return MigrationNotices(
            self.worker.context,
            self._kind,
            self.store,
            fence,
            leadership=self.leadership,
            pause=pause,
            notify=counted(notify, self._migration_metrics),
            confirm=partial(self.leadership.confirm, self.store, self.leader_key),
            audit_every=self.worker.config.status.audit_every,
        )

    def _webhook(self) -> NotifyArrival | None:
        url, file = self.worker.config.status.webhook, self.worker.config.status.webhook_token_file
        if url is None:
            return None
        return Webhook(url, None if file is None else partial(read_secret, file, os.environ))

    async def _apply_periodically(self, applied: AppliedIntents[Any, Any]) -> None:
        while True:
            await asyncio.sleep(APPLIED_WITHIN.total_seconds())
            try:
                await self.intents.refresh()
                applied.apply()
            except Away as away:
                log.debug("cannot read intents; retrying", error=str(away))

    async def _wait_fence(self, leading: Leading) -> Fence | None:
        """Wait until the syncer has raised the inventory's fence. None: this server does not lead after all."""
        self._waiting.end()  # an earlier term's wait may have been cut short
        while True:
            try:
                if not await self.is_confirmed(leading):
                    return None
                fence = self._fence(leading.term)
                if fence is not None:
                    await self._catch_up(fence.term)
                    await self.intents.refresh()
                    return fence
            except Away as away:
                self._wait(f"waiting: {away.what}", str(away))
            except StoreError as error:
                self._wait("waiting: store", str(error))
            await asyncio.sleep(_FENCE_POLL_S)

    async def _catch_up(self, term: int) -> None:
        """Wait for all reports up to the beginning of this term: the leader's key is watched together with them. With
        fewer, rows that the last leader wrote would be reverted and written again."""
        try:
            async with asyncio.timeout(_CATCH_UP.total_seconds()):
                await self._kind.mirror.wait_seen(term)
        except TimeoutError:
            log.warning(
                "watch has not caught up with the beginning of the term; statuses may be a little old until it has",
                term=term,
                waited_s=_CATCH_UP.total_seconds(),
            )

    def _fence(self, term: int) -> Fence | None:
        """The fence that the syncer of this server has raised; None while there is none, or identity is in doubt."""
        shown = self._identity.read()
        if shown is None or shown.term != term:
            self._wait("idle: inventory and store are being compared", "the syncer has not judged them yet")
            return None
        if shown.closed:
            reason, self._doubted = FleetIdentityReason[shown.closed], self.worker.clock.now()
            self._wait("held: identity", f"{reason.value}; to release: {OPENS[reason]}")
            return None
        return Fence(self._region.segment, shown.epoch, term)

    async def _until_identity_changes(self, fence: Fence) -> None:
        """Return when the fence has another epoch, or when a verdict has ended: the term's work then begins again, and
        reads the rows of an inventory that was restored meanwhile."""
        first = self._identity.read()
        while True:
            await asyncio.sleep(_RETRY.total_seconds())
            shown = self._identity.read()
            if shown is None or first is None or shown.term != fence.term:
                continue
            if shown.epoch != fence.epoch or has_verdict_ended(first, shown):
                return

    def _wait(self, state: str, why: str) -> None:
        if self._waiting.is_news(state):
            log.info("status worker is waiting", state=state, reason=why, **self._waiting.fields())
        self.worker.vitals.attempted(success=not state.startswith("waiting"), state=state)

    def clear_metrics(self) -> None:
        self._metrics.clear()

    def follower_handlers(self) -> Mapping[str, Handler]:
        return {"about": self._about_follower}

    async def tick(self, *, following: bool) -> None:
        self.worker.vitals.warm = self._kind.mirror.synced
        if following:
            await self._drain()

    async def _drain(self) -> None:
        """Discard the changes that wait: the mirror has them, and a follower does not handle them one by one."""
        try:
            async with self._draining, asyncio.timeout(_DRAIN_S):
                while self._kind.mirror.backlog:
                    await self._kind.mirror.take(10_000)
        except TimeoutError:
            return  # the mirror is still receiving the rest

    async def _about_follower(self, _request: Request, _who: Who) -> Any:
        return {"leading": False, "warm": self._kind.mirror.synced}


def has_verdict_ended(first: IdentityCell, shown: IdentityCell) -> bool:  # protection: C61
    """Return whether a verdict was reached and has ended since `first`: rows may be older than they are remembered."""
    return shown.changes != first.changes and not shown.closed


async def run(worker: Worker, make_kind: Callable[..., StatusKind[Any, Any]]) -> None:
    config = worker.config
    region = configured_region(config)
    backend = open_backend(config.inventory, region)
    store, thread, wake = open_store(config.store), DatabaseThread(worker.name), backend.waker()
    worker.metrics.follow(store.contact, worker.clock.now)
    own = OwnKey(LEADER.key(region, "leader"), config.server.renew_every)
    try:
        kind = make_kind(region, store, backend.observed(), thread, worker.clock.now, own)
        await StatusWorker(worker, kind, store, wake, backend.notify_arrival).run()
    finally:
        await wake.close()
        await store.close()
        thread.close()
        backend.close()
