"""The work of `agent-status` and `endpoint-status`: a warm mirror always, and a leader's work while their server leads.

Nothing is written before the store has its identity and it is that of the inventory's fleet (C27), and before the
inventory's fence is raised.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import structlog

from holdfast.inventory.api import Fence, Inventory
from holdfast.inventory.open import configured_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.inventory.sql.wake import waker
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.identity import Identity
from holdfast.model.control.leader import LEADER
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.observed import ENDPOINT
from holdfast.reconcile import Away
from holdfast.runtime.config_file import read_secret
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.store_client import open_store
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import Leading, while_leading
from holdfast.server.election.worker import leadership, server_name
from holdfast.server.intents.pause import HEARD_WITHIN, PauseCommands
from holdfast.server.intents.store import EtcdIntents
from holdfast.server.status.commands import StatusCommands, view
from holdfast.server.status.feed import follow
from holdfast.server.status.migration_notices import MigrationMetrics, MigrationNotices, counted
from holdfast.server.status.staleness import Staleness
from holdfast.server.status.term import Around, StatusKind, StatusTerm
from holdfast.server.webhook import Webhook
from holdfast.store.api import OwnKey, Store, StoreError
from holdfast.store.identity import read_identity

log = structlog.get_logger(__name__)

_OVERDUE = 74
_IDLE = Duration(seconds=1)
_RETRY = Duration(seconds=1)
_LET_GO_S = 0.05
_CATCH_UP = Duration(seconds=10)
_COMMANDS = ("allow", "held", "sync", "forget", "explain", "orphans")


class _Nothing:
    """The backlog of a follower: none of its business."""

    def backlog(self) -> int:
        return 0

    def oldest(self) -> Instant:
        return NEVER


class StatusJob:
    """One of the two workers."""

    def __init__(
        self, worker: Worker, around: Around, topic: StatusKind[Any, Any], store: Store, inventory: Inventory
    ) -> None:
        self._worker = worker
        self._around = around
        self._topic = topic
        self._store = store
        self._inventory = inventory
        self._region = topic.subject.region
        self._reign: StatusTerm[Any, Any] | None = None
        self._notices: MigrationNotices | None = None
        self._letting_go = asyncio.Lock()
        self._key = LEADER.key(self._region, "leader")
        self._told = MigrationMetrics(worker.metrics.registry) if topic.subject.kind == ENDPOINT else None
        self._words = EtcdIntents(store, self._region, around.clock, Scope(ScopeKind(topic.name)))
        self._pausing = PauseCommands(self._words, around.clock, around.decisions)
        worker.handlers["about"] = self._about
        self._follow()

    async def run(self) -> None:
        leading = while_leading(self._around.leadership, self._lead, self._worker.stopping, die=_die)
        mirror = follow(self._topic.mirror, self._topic.name)  # on followers, too: who takes over compares what it has
        await until_first({"mirror": mirror, "following": self._show_following(), "leading": leading})

    async def _lead(self, leading: Leading) -> None:
        fence = await self._fence(leading)
        if fence is None:
            return
        async with self._letting_go:  # whoever lets changes go must be through before they count
            log.info(f"{self._topic.name} begins under term {fence.term}, epoch {fence.epoch}")
        try:
            self._reign = reign = StatusTerm(self._around, self._topic, fence)
            self._notices = self._telling(fence)
            reign.obey(self._words.pause)
            StatusCommands(self._worker, reign, self._notices).offer()
            self._pausing.hear = partial(self._hear, reign)
            self._worker.handlers |= self._pausing.handlers()
            await self._beside(reign, self._notices)
        finally:
            self._reign = self._notices = None
            self._follow()

    def _telling(self, fence: Fence) -> MigrationNotices | None:
        """The notices of migrations: for endpoints, where there is somebody to tell."""
        url, file = self._worker.config.status.webhook, self._worker.config.status.webhook_token_file
        if url is None or self._told is None:
            return None
        token = None if file is None else partial(read_secret, file, os.environ)
        tell = counted(Webhook(url, token), self._told)
        confirm = partial(self._around.leadership.confirm, self._store, self._key)
        return MigrationNotices(self._around, self._region, self._store, self._topic.mirror, fence, tell, confirm)

    async def _beside(self, reign: StatusTerm[Any, Any], notices: MigrationNotices | None) -> None:
        stopping = self._worker.stopping
        works = {"reign": reign.run(stopping), "words": self._listen(reign)}
        if notices is not None:
            works["notices"] = notices.run(stopping)
        await until_first(works)

    async def _listen(self, reign: StatusTerm[Any, Any]) -> None:
        while True:
            await asyncio.sleep(HEARD_WITHIN.total_seconds())
            try:
                await self._hear(reign)
            except Away as away:
                log.debug(f"what operators said cannot be read now: {away}")

    async def _hear(self, reign: StatusTerm[Any, Any]) -> None:
        await self._words.read()
        reign.obey(self._words.pause)

    async def _fence(self, leading: Leading) -> Fence | None:
        """A new leader's first act. None: this server does not lead after all."""
        while True:
            try:
                confirmed = await self._around.leadership.confirm(self._store, self._key)
                if not isinstance(confirmed, Leading) or confirmed.term != leading.term:
                    return None
                fence = await self._raised(leading.term)
                if fence is not None:
                    await self._caught_up(fence.term)
                    await self._words.read()
                    return fence
            except Away as away:
                self._waits(f"waiting: {away.what}", str(away))
            except StoreError as error:
                self._waits("waiting: store", str(error))
            await asyncio.sleep(_RETRY.total_seconds())

    async def _caught_up(self, term: int) -> None:
        """Whoever led before wrote what it had seen: with less than that, it would be taken back and written again. The
        leader's key is watched with the reports, so they are there up to the moment at which this term began."""
        try:
            async with asyncio.timeout(_CATCH_UP.total_seconds()):
                await self._topic.mirror.wait_shown(term)
        except TimeoutError:
            log.warning(
                f"{self._topic.name} begins although its watch has not shown the beginning of term {term} within "
                f"{_CATCH_UP.total_seconds():.0f} s: what it writes may be a little old until it has"
            )

    async def _raised(self, term: int) -> Fence | None:
        found = await read_identity(self._store, self._region)
        if not isinstance(found.identity, Identity):
            self._waits("idle: the store has no identity yet", "the syncer names the store once it is filled")
            return None
        fleet = await self._around.aside(self._inventory.fleet)
        if fleet != found.identity.fleet:
            self._waits("held: identity", "inventory and store do not belong to the same fleet")
            return None
        fence = Fence(self._region.segment, found.identity.epoch, term)
        await self._around.aside(partial(self._inventory.raise_fence, fence))
        return fence

    def _waits(self, state: str, why: str) -> None:
        if self._worker.vitals.state != state:
            log.warning(f"{self._topic.name}: {why}")
        self._worker.vitals.attempted(success=not state.startswith("waiting"), state=state)

    def _follow(self) -> None:
        vitals = self._worker.vitals
        vitals.consumes(_Nothing())
        vitals.audit = NEVER
        vitals.state = "following"
        self._around.figures.nothing()
        declined: Handler = self._declined
        self._worker.handlers.update(dict.fromkeys(_COMMANDS, declined))
        self._pausing.hear = None
        self._worker.handlers |= self._pausing.handlers()

    async def _show_following(self) -> None:
        while not await self._worker.stopped(_IDLE):
            self._worker.vitals.warm = self._topic.mirror.synced
            # While a reign is still there the changes are its own, also where the term looked over for a moment.
            if self._reign is None and not isinstance(self._around.leadership.check(), Leading):
                self._worker.vitals.attempted(success=True, state="following")
                await self._let_go()

    async def _let_go(self) -> None:
        """What came meanwhile is in the mirror; a follower need not look at it one by one."""
        try:
            async with self._letting_go, asyncio.timeout(_LET_GO_S):
                while self._topic.mirror.backlog:
                    await self._topic.mirror.take(10_000)
        except TimeoutError:
            return  # the rest is still being taken in

    async def _about(self, _request: Request, _who: Who) -> Any:
        if self._reign is None:
            return {"leading": False, "warm": self._topic.mirror.synced}
        migrations = {} if self._notices is None else {"migrations": self._notices.view()}
        return {"leading": True, **view(self._reign), **migrations}

    async def _declined(self, _request: Request, _who: Who) -> Any:
        raise Declined(
            f"{server_name(self._worker)} does not lead, so its {self._topic.name} only watches; "
            "holdfast leader tells who does"
        )


def _die(why: str) -> NoReturn:
    log.error(why)
    os._exit(_OVERDUE)


async def run(worker: Worker, topic: Callable[..., StatusKind[Any, Any]]) -> None:
    config = worker.config
    engine = configured_engine(config.inventory)
    store, aside, ear, observed = (
        open_store(config.store),
        DatabaseThread(worker.name),
        waker(engine),
        SqlObserved(engine),
    )
    region = Region(config.store.region or "")
    own = OwnKey(LEADER.key(region, "leader"), config.server.renew_every)
    around = Around(
        observed=observed,
        aside=aside,
        waker=ear,
        clock=worker.clock,
        leadership=leadership(worker),
        vitals=worker.vitals,
        metrics=worker.metrics,
        decisions=worker.decisions,
        staleness=Staleness(config.status.stale_after, config.status.warn_every),
        audit_every=config.status.audit_every,
        poll_every=config.inventory.poll_every,
    )
    try:
        made = topic(region, store, observed, aside, worker.clock, own)
        await StatusJob(worker, around, made, store, SqlInventory(engine)).run()
    finally:
        await ear.close()
        await store.close()
        aside.close()
        engine.dispose()
