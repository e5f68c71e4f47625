"""Elector worker: takes part in elections, registers the server, hands leadership over when it cannot do the work.

Answers `about`, `host`, `step-down`, `step-down-elsewhere`, `restart-elsewhere`, `pause` and `resume`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from holdfast import __version__
from holdfast.config.root import Config
from holdfast.config.sections.store import StoreSettings
from holdfast.model.base.name import NameRefused
from holdfast.model.base.region import configured_region
from holdfast.model.base.time import Duration
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.restart_request import RestartRequest
from holdfast.model.control.scope import FLEET, Scope, ScopeKind
from holdfast.model.control.server import Server, WorkerHealth
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.daemon.process import boot_id
from holdfast.runtime.daemon.report import WorkerReport, report
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.commands import PauseCommands
from holdfast.runtime.intents.etcd import server_intents
from holdfast.runtime.intents.store import FileIntents, not_stored, request_intent, shown_intents
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.runtime.tasks import until_first
from holdfast.server import server_name
from holdfast.server.compaction.compactor import Compactor
from holdfast.server.election import predecessor
from holdfast.server.election.drains import DrainCommands
from holdfast.server.election.elector import Elector
from holdfast.server.election.handover import ABLE_FOR, PATIENCE, Ability, HandoverRefused, successor
from holdfast.server.election.histories import HistoryAnswers
from holdfast.server.election.identity import IdentityCheck
from holdfast.server.election.leadership import LEADERSHIP_CELL, LeadershipCell, is_over, term_ended_cells
from holdfast.server.election.machine import Election, ElectionPhase, LossReason, rests
from holdfast.server.election.metrics import ElectionMetrics
from holdfast.server.election.registrar import Registrar
from holdfast.server.election.restarts import RestartRequests
from holdfast.server.election.step_downs import StepDowns
from holdfast.server.election.trial import TrialState
from holdfast.server.election.views import ElectorView, StoreSeen, read_host
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import StoreVerdict

log = structlog.get_logger(__name__)

_HEALTH_EVERY = Duration(seconds=1)
_IDENTITY_RETRY = Duration(seconds=1)
_IDENTITY_EVERY = Duration(seconds=2)
_MEMBERS_WITHIN = Duration(seconds=1)
"""Time for etcd's members to answer `about`: `holdfast status` waits two seconds for all of it, and a member that
hangs is one of its subjects."""


class ElectorJob:
    """Puts the elector together with the board, the store's identity, the registrar, the compactor and the commands."""

    def __init__(self, worker: Worker, patience: Duration = PATIENCE, able_for: Duration = ABLE_FOR) -> None:
        self._worker = worker
        self._patience = patience
        self._able_for = able_for
        self._store = open_store(_with_rpc_timeout(worker.config))
        worker.metrics.follow(self._store.contact, worker.clock.now)
        self._region = configured_region(worker.config)
        self._shown = worker.board.cell(LEADERSHIP_CELL, LeadershipCell)
        self._ended = list(term_ended_cells(worker).values())
        self._metrics = ElectionMetrics(worker.metrics.registry, worker.clock.now, self._region)
        self._ability = Ability()
        self._leader_key = LEADER.key(self._region, "leader")
        self._unreached = self._unreadable = ""
        self.identity = IdentityCheck(self._store, self._region, StoreMemory(worker.paths.state, "server"))
        self._name_conflict = ""
        self._intents = FileIntents(worker.paths, worker.name, worker.clock)
        self._scope = Scope(ScopeKind.SERVER, server_name(worker))
        state = worker.paths.state
        self._fleet_intents = server_intents(
            self._store, self._region, worker.clock, state, FLEET, StoreMemory(state, "server").load
        )
        now = worker.clock.wall()
        namespace = predecessor.pid_namespace()
        self._me = Leader(server_name(worker), socket.gethostname(), os.getpid(), boot_id(), namespace, now)
        self._since = now
        self.elector = Elector(
            self._store,
            worker.config.server,
            clock=worker.clock,
            me=self._me,
            region=self._region,
            is_dead=self._is_dead,
            is_over=self._is_over,
            show=self._show,
            on_attempt=self._on_attempt,
            on_change=self._on_change,
        )
        # A client of its own: a slow compaction must not delay a renewal.
        self._compaction_store = open_store(worker.config.store)
        self.compactor = Compactor(
            self._compaction_store,
            self._region,
            worker.config.compaction,
            worker.clock,
            worker.metrics.registry,
            self._own_fenced_store,
        )
        self.registrar = Registrar(
            self._store,
            self._region,
            self._me.name,
            worker.config.server.ttl,
            report=self._report,
            is_dead=self._is_dead,
            on_name_taken=self._on_name_taken,
        )
        self._step_downs = StepDowns(
            self._store,
            self._region,
            self._me.name,
            self.elector,
            self.registrar,
            asked=self._asked,
            record=self._record_request,
            rest=2 * worker.config.server.ttl,
        )
        self._restarts = RestartRequests(self._store, self._region, self._me.name, worker.paths.socket())
        self._histories = HistoryAnswers(self._store, self._region, self._me.name, worker.paths.socket())
        worker.handlers |= self._handlers()

    def _handlers(self) -> Mapping[str, Handler]:
        context = self._worker.context
        fleet = PauseCommands(self._fleet_intents, FLEET, context, None, ", obeyed by every daemon within seconds")
        return {
            "about": self._about,
            "host": self._host,
            "restart-elsewhere": self._restart_elsewhere,
            **self._step_downs.handlers(),
            "intents": self._shown_intents,
            **PauseCommands(self._intents, self._scope, context, self._apply_pause).handlers(),
            **{f"{name}-fleet": handler for name, handler in fleet.handlers().items()},
            **DrainCommands(self._store, self._region, self._fleet_intents, context).handlers(),
        }

    async def run(self) -> None:
        """Write nothing, and do not campaign, before the store is known to be ours."""
        try:
            while not await self._store_is_ours():
                if await self._worker.stopped(_IDENTITY_RETRY):
                    return
            await self._take_part()
        finally:
            await self._compaction_store.close()
            await self._store.close()

    async def _take_part(self) -> None:
        self._apply_pause()
        await self._take_name()
        await until_first(
            {
                "elector": self.elector.run(self._worker.stopping),  # the only one of them that ends by itself
                "registrar": self.registrar.run(),
                "health": self._check_health_periodically(),
                "identity": self._check_identity_periodically(),
                "compactor": self.compactor.run(),
                "restarts": self._restarts.run(),
                "step-downs": self._step_downs.run(),
                "histories": self._histories.run(),
            }
        )
        await self.registrar.withdraw()

    async def _take_name(self) -> None:
        """Register before the first campaign: a second server of the same name must not lead even for a moment."""
        try:
            await self.registrar.register()
        except (StoreAway, StoreError) as error:
            log.debug("cannot register; retrying", server=self._me.name, error=str(error))

    async def _store_is_ours(self) -> bool:
        """Read the store's identity. While it is unreachable or foreign, this server waits and shows the reason."""
        self._worker.vitals.duty = self._worker.clock.now() + 2 * self._worker.config.server.ttl
        try:
            judgement = await self.identity.check(self._worker.clock.now())
        except (StoreAway, StoreError) as error:
            if self._unreached != str(error):
                log.warning("store is unreachable; waiting", server=self._me.name, error=str(error))
            self._unreached = str(error)
            self._worker.vitals.attempted(success=False, state="waiting: store")
            return False
        except MemoryUnreadable as error:
            self._log_unreadable(error)
            self._worker.vitals.attempted(success=False, state="refused: memory unreadable")
            return False
        self._unreached = self._unreadable = ""
        foreign = judgement.verdict is StoreVerdict.FOREIGN
        self._worker.vitals.attempted(success=not foreign, state="held: foreign_store" if foreign else None)
        return not foreign

    async def _check_identity_periodically(self) -> None:
        while True:
            await asyncio.sleep(_IDENTITY_EVERY.total_seconds())
            await self._remember_fleet_pause()
            try:
                judgement = await self.identity.check(self._worker.clock.now())
                if judgement.verdict is StoreVerdict.UNNAMED and self._creates_identity():
                    await self.identity.create(FencedStore(self._store, self._leader_key, self.elector.state.term))
            except (StoreAway, StoreError) as error:
                log.debug("cannot read the store identity; retrying", error=str(error))
                continue
            except MemoryUnreadable as error:
                self._log_unreadable(error)
                continue  # the last judgement still holds: a file that broke meanwhile deposes no leader
            self._unreadable = ""
            foreign = judgement.verdict is StoreVerdict.FOREIGN
            withheld = LossReason.FOREIGN in self.elector.state.withheld
            if foreign and not withheld:
                self.elector.leave(LossReason.FOREIGN)
            elif withheld and not foreign:
                self.elector.rejoin(LossReason.FOREIGN)

    def _own_fenced_store(self) -> FencedStore | None:
        """The store, fenced by the term that this server leads in; None while it does not lead."""
        state = self.elector.state
        leads = state.phase is ElectionPhase.LEADING and state.term
        return FencedStore(self._compaction_store, self._leader_key, state.term) if leads else None

    def _log_unreadable(self, error: MemoryUnreadable) -> None:
        if self._unreadable != str(error):
            log.error("cannot read the remembered store identity; retrying", error=str(error))
        self._unreadable = str(error)

    def _creates_identity(self) -> bool:
        """With an inventory the syncer creates it, before it fills the store."""
        return self.elector.state.phase is ElectionPhase.LEADING and self._worker.config.inventory.database is None

    def _is_dead(self, other: Leader | Server) -> bool:
        return predecessor.certainly_dead(other, self._me, predecessor.is_gone)

    def _is_over(self, term: int) -> bool:
        return is_over(term, [cell.read() for cell in self._ended])

    def _show(self, shown: LeadershipCell) -> None:
        before = self._shown.read()
        if before is None or before.phase != shown.phase:
            self.registrar.publish()  # a server that has just stepped down rests, and must not be handed the leadership
        self._shown.write(shown)
        self._metrics.show(shown)

    def _on_attempt(self, state: Election, *, success: bool) -> None:
        ttl = self._worker.config.server.ttl
        now = self._worker.clock.now()
        # A leader must renew within its TTL, a follower read the key within twice that.
        self._worker.vitals.duty = now + (ttl if state.phase is ElectionPhase.LEADING else 2 * ttl)
        refused = self._name_conflict and "refused: name taken"
        self._worker.vitals.attempted(success=success, state=refused or _state(state, success=success))

    def _on_change(self, term: int, sentence: str) -> None:
        self._metrics.transitions.inc()
        record = Decision(self._worker.clock.wall(), "elector", "lead", "leader", "done", sentence, term=term)
        self._worker.decisions.write([record])

    def _on_name_taken(self, sentence: str) -> None:
        if sentence and not self._name_conflict:
            log.error("server name is taken; not taking part in elections", reason=sentence)
            self.elector.leave(LossReason.DUPLICATE)
        elif self._name_conflict and not sentence:
            log.info("server name reacquired", server=self._me.name)
            self.elector.rejoin(LossReason.DUPLICATE)
        self._name_conflict = sentence

    def _report(self) -> Server:
        board = self._worker.board
        workers = report(board, self._worker.role, __version__, self._worker.clock.now()).workers
        return Server(
            host=self._me.host,
            pid=self._me.pid,
            boot_id=self._me.boot_id,
            pid_namespace=self._me.pid_namespace,
            version=__version__,
            since=self._since,
            database=not any(_lacks_database(one) for one in workers),
            failed=self._ability.failed,
            warm=all(one.warm for one in workers if one.phase != "completed"),
            stands=not rests(self.elector.state, self._worker.clock.now()),
            rests=self._why_resting(),
            lag_s=max((one.lag_s or 0.0 for one in workers), default=0.0),
            pauses=tuple(f"{one.scope} by {one.sentence}" for one in (*self._pauses(), *self._fleet_pauses())),
            workers={one.name: _health(one) for one in workers if one.name != "elector"},
        )

    async def _check_health_periodically(self) -> None:
        while True:
            await asyncio.sleep(_HEALTH_EVERY.total_seconds())
            self._apply_pause()
            now = self._worker.clock.now()
            leads = self.elector.state.phase is ElectionPhase.LEADING
            self._ability = self._ability.updated(self._report(), self.registrar.others, now, leads=leads)
            better = successor(self._ability, self.registrar.others, now, self._patience, self._able_for)
            if better is not None and leads and await self._can_take_over(better):
                log.warning("this server cannot do a leader's work; handing over", to=better)
                self.elector.leave(LossReason.HANDED_OVER)

    async def _can_take_over(self, name: str) -> bool:
        try:
            return bool(await self.registrar.successors(self._me.name, name))
        except (HandoverRefused, StoreAway, StoreError) as error:
            log.debug("cannot hand over; retrying", to=name, error=str(error))
            return False

    async def _about(self, _request: Request, _who: Who) -> Any:
        now, shown = self._worker.clock.now(), self._shown.read() or LeadershipCell("following")
        seen, error = None, ""
        try:
            seen = await self._store_seen()
        except (StoreAway, StoreError) as away:
            error = str(away)
        servers = {**self.registrar.others, self._me.name: self._report()}
        refusal = self.identity.refusal
        about = ElectorView(
            name=self._me.name,
            phase=shown.phase,
            leader=shown.leader,
            term=shown.term,
            since_s=(now - shown.since).total_seconds(),
            lease_s=max(0.0, (shown.work_until - now).total_seconds()) if shown.work_until else 0.0,
            ttl_s=self._worker.config.server.ttl.total_seconds(),
            followers={name: one.eligible for name, one in servers.items() if name != shown.leader},
            confirmed_s=(now - self.elector.confirmed).total_seconds() if self.elector.confirmed else None,
            last_term=self.elector.last_term,
            fleet=self.identity.fleet,
            refused=self._name_conflict or self._unreadable,
            paused=self._pause_sentence(),
            store=seen,
            store_error=error,
            refuses_store=refusal.sentence if refusal else "",
            opens=refusal.opens if refusal else "",
            verdict=refusal.verdict.value if refusal else "",
            recorded=self.identity.recorded,
        )
        return msgspec.to_builtins(about)

    async def _host(self, request: Request, _who: Who) -> Any:
        name = str(request.args.get("name", ""))
        try:
            return msgspec.to_builtins(await read_host(self._store, self._region, name))
        except (StoreAway, StoreError, NameRefused) as error:
            raise Declined(str(error)) from error

    def _pause_sentence(self) -> str:
        return next((one.sentence for one in self._pauses()), "")

    async def _store_seen(self) -> StoreSeen:
        sent = self._worker.clock.now()
        members = await self._store.status(_MEMBERS_WITHIN)
        took = max(member.took for member in members).total_seconds() * 1_000
        newest = max(members, key=lambda member: member.revision)
        total = max(len(members), len(self._worker.config.store.endpoints))
        compacted = self.compactor.compacted
        ago = (sent - compacted).total_seconds() if compacted else None
        return StoreSeen(newest.version, total, len(members), newest.revision, round(took, 1), ago)

    def _why_resting(self) -> str:
        """Reason for which this server is no candidate; empty while it is one."""
        state = self.elector.state
        now = self._worker.clock.now()
        if not rests(state, now):
            return ""
        if state.withheld:
            return ", ".join(sorted(why.value for why in state.withheld))
        left = (state.rest_until - now).total_seconds()
        return f"it rests for {max(0.0, left):.0f} s, because {state.lost.value if state.lost else 'it gave way'}"

    async def _restart_elsewhere(self, request: Request, who: Who) -> str:
        """Ask another server to restart one of its workers."""
        asked = self._asked(request, who)
        server, worker = str(request.args.get("server") or ""), str(request.args.get("name") or "")
        try:
            await self.registrar.read_others()
            wanted = RestartRequest(worker, asked.who, asked.why, asked.since)
            answer = await self._restarts.send(server, wanted, self.registrar.others)
        except (StoreAway, StoreError) as error:
            raise not_stored(error, "holdfast history") from error
        self._record_request(f"restart {worker} of {server}", asked)
        return answer

    def _asked(self, request: Request, who: Who) -> Intent:
        """Return the operator and the reason of a request; nothing of it is kept."""
        return request_intent(request, who, self._worker.clock, IntentKind.PAUSE, self._scope)

    def _apply_pause(self) -> None:
        """Apply the operator's pause. It survives restarts and ends with `resume` or when it expires."""
        wanted, paused = bool(self._pauses()), LossReason.PAUSED in self.elector.state.withheld
        if wanted and not paused:
            self.elector.leave(LossReason.PAUSED)
        elif paused and not wanted:
            log.info("pause is over; taking part in elections again", server=self._me.name)
            over = f"the pause of {self._me.name} is over; it takes part in elections again"
            self._worker.decisions.write(
                [Decision(self._worker.clock.wall(), "elector", "pause", str(self._scope), "over", over)]
            )
            self.elector.rejoin(LossReason.PAUSED)

    def _pauses(self) -> list[Intent]:
        """The pause of this server, if there is one in force."""
        wall = self._worker.clock.wall()
        return [one for one in self._intents.all() if one.holds(wall)]

    def _fleet_pauses(self) -> list[Intent]:
        wall = self._worker.clock.wall()
        return [one for one in self._fleet_intents.all() if one.holds(wall)]

    async def _shown_intents(self, _request: Request, _who: Who) -> Any:
        wall = self._worker.clock.wall()
        return [*shown_intents(self._intents, wall), *shown_intents(self._fleet_intents, wall)]

    async def _remember_fleet_pause(self) -> None:
        """Read the pause of the fleet, which does not concern elections, for `status` and the memory on disk."""
        try:
            await self._fleet_intents.refresh()
        except (StoreAway, StoreError) as error:
            log.debug("cannot read the pause of the fleet; retrying", error=str(error))

    def _record_request(self, what: str, asked: Intent) -> None:
        why = f": “{asked.why}”" if asked.why else ""
        sentence = f"{asked.who} asked {self._me.name} to {what}{asked.lasting}{why}"
        log.info("operator request", details=sentence)
        record = Decision(asked.since, "elector", what, "leader", "asked", sentence)
        self._worker.decisions.write([record])


def _with_rpc_timeout(config: Config) -> StoreSettings:
    """The elector cancels a call after `rpc_timeout`: the client must have tried another member by then."""
    return msgspec.structs.replace(
        config.store, call_deadline=min(config.store.call_deadline, config.server.rpc_timeout)
    )


def _state(state: Election, *, success: bool) -> str:
    if not success and state.phase is not ElectionPhase.LEADING:
        return "waiting: store"
    leader = state.seen.leader if state.seen and state.seen.term else None
    return f"following {leader.name}" if state.phase is ElectionPhase.FOLLOWING and leader else state.phase.value


def _lacks_database(worker: WorkerReport) -> bool:
    """True for a worker that waits for the database, and for a syncer that has not tried it yet (C45)."""
    untried = worker.name == "syncer" and worker.state == TrialState.UNTRIED.value
    return untried or worker.state in (TrialState.FAILED.value, "waiting: database")


def _health(worker: WorkerReport) -> WorkerHealth:
    """A worker that has crashed often lately is not healthy, even while it runs."""
    if worker.crash_looping:
        return WorkerHealth(healthy=False, state="crash-looping")
    return WorkerHealth(not worker.state.startswith("waiting"), worker.state)


async def elect(worker: Worker) -> None:
    await ElectorJob(worker).run()
