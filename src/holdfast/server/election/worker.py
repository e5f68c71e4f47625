"""The workers of a server, and the elector's job: elect, register, give way; answer `step-down`, `pause`, `resume`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from holdfast import __version__
from holdfast.config.root import Config
from holdfast.config.sections.store import StoreSettings as StoreConfig
from holdfast.model.base.name import NameRefused
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.server import Server, WorkerHealth
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.process import boot_id
from holdfast.runtime.daemon.report import WorkerReport, report
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.book import IntentFile, WorkerIntent, WorkerIntents, request_intent
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.server.compaction.compactor import Compactor
from holdfast.server.election import host_report as hosts
from holdfast.server.election.about import ElectorView, StoreSeen
from holdfast.server.election.elector import Elector, Surroundings
from holdfast.server.election.handover import PATIENCE, Ability, successor
from holdfast.server.election.identity import IdentityCheck
from holdfast.server.election.leadership import Leadership, LeadershipCell, TermEnded, is_over
from holdfast.server.election.machine import Election, ElectionPhase, LossReason
from holdfast.server.election.metrics import ElectionMetrics
from holdfast.server.election.predecessor import certainly_dead
from holdfast.server.election.registrar import Around, Registrar
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import StoreVerdict

log = structlog.get_logger(__name__)

ELECTOR = Spec("elector", "holdfast.server.election.worker:elect")
SYNCER = Spec("syncer", "holdfast.server.syncer.worker:run")
AGENT_STATUS = Spec("agent-status", "holdfast.server.status.workers:agents")
ENDPOINT_STATUS = Spec("endpoint-status", "holdfast.server.status.workers:endpoints")
WORKERS: tuple[Spec, ...] = (ELECTOR, SYNCER, AGENT_STATUS, ENDPOINT_STATUS)
LEADERSHIP_CELL = "leadership"
_HEALTH_EVERY = Duration(seconds=1)
_GUARD_FIRST = Duration(seconds=1)
_GUARD_EVERY = Duration(seconds=2)


def cells(workers: Sequence[Spec]) -> list[str]:
    """What a server's board has besides the pulses: the elector's word, and each worker's findings about it."""
    return [LEADERSHIP_CELL, *(f"{spec.name}/found" for spec in workers)]


def leadership(worker: Worker) -> Leadership:
    """How this worker asks whether it may write."""
    found = {name: worker.board.cell(name, TermEnded) for name in worker.board.cells() if name.endswith("/found")}
    shown = worker.board.cell(LEADERSHIP_CELL, LeadershipCell)
    return Leadership(shown, found[f"{worker.name}/found"], list(found.values()), worker.clock)


def server_name(worker: Worker) -> str:
    return worker.config.server.name or socket.gethostname()


def pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def is_gone(pid: int) -> bool:
    if not 0 < pid < 2**31:
        return False  # no process ever had it: nothing can be known of whoever wrote that
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    # A zombie is no more, though its number is still taken.
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class ElectorJob:
    """Everything of the elector that is not the election itself."""

    def __init__(self, worker: Worker, patience: Duration = PATIENCE) -> None:
        self._worker = worker
        self._patience = patience
        self._store = open_store(_hurried(worker.config))
        self._region = Region(worker.config.store.region or "")
        self._shown = worker.board.cell(LEADERSHIP_CELL, LeadershipCell)
        self._found = [worker.board.cell(name, TermEnded) for name in worker.board.cells() if name.endswith("/found")]
        self._metrics = ElectionMetrics(worker.metrics.registry, worker.clock.now, self._region)
        self._ability = Ability()
        self._leader_key = LEADER.key(self._region, "leader")
        self._unreached = self._unreadable = ""
        self.guard = IdentityCheck(self._store, self._region, StoreMemory(worker.paths.state, "server"))
        self._taken = ""
        self._book = IntentFile(worker.paths, worker.name)
        now = worker.clock.wall()
        self._me = Leader(server_name(worker), socket.gethostname(), os.getpid(), boot_id(), pid_namespace(), now)
        self._since = now
        around = Surroundings(
            worker.clock, self._me, self._region, self._dead, self._show, self._attempted, self._doubted, self._told
        )
        self.elector = Elector(self._store, worker.config.server, around)
        # A client of its own: a compaction that takes its time must not hold up a renewal.
        self._upkeep = open_store(worker.config.store)
        self.compactor = Compactor(
            self._upkeep, self._region, worker.config.compaction, worker.clock, worker.metrics.registry, self._own_term
        )
        ours = Around(self._report, self._dead, self._name_taken)
        self.registrar = Registrar(self._store, self._region, self._me.name, worker.config.server.ttl, ours)
        worker.handlers |= {
            "about": self._about,
            "host": self._host,
            "step-down": self._step_down,
            "pause": self._pause,
            "resume": self._resume,
        }

    async def run(self) -> None:
        """Nothing is written, not even a wish to lead, before the store is known to be ours."""
        try:
            while not await self._store_is_ours():
                if await self._worker.stopped(_GUARD_FIRST):
                    return
            await self._take_part()
        finally:
            await self._upkeep.close()
            await self._store.close()

    async def _take_part(self) -> None:
        self._heed_pause()
        await self._take_name()
        elect = asyncio.create_task(self.elector.run(self._worker.stopping), name="elector")
        works = (self.registrar.run(), self._look_after_itself(), self._stand_guard(), self.compactor.run())
        beside = [asyncio.create_task(one) for one in works]
        try:
            done, _ = await asyncio.wait({elect, *beside}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await elect
        finally:
            for task in (elect, *beside):
                task.cancel()
        await self.registrar.withdraw()

    async def _take_name(self) -> None:
        """A second server of the same name must not lead, not even until it has noticed the first."""
        try:
            await self.registrar.register()
        except (StoreAway, StoreError) as error:
            log.debug(f"{self._me.name} cannot register yet: {error}")

    async def _store_is_ours(self) -> bool:
        """Asks the store who it is. While it is away or foreign, this server waits and says for what."""
        self._worker.vitals.duty = self._worker.clock.now() + 2 * self._worker.config.server.ttl
        try:
            said = await self.guard.look(self._worker.clock.now())
        except (StoreAway, StoreError) as error:
            if self._unreached != str(error):
                log.warning(f"{self._me.name} waits for the store: {error}")
            self._unreached = str(error)
            self._worker.vitals.attempted(success=False, state="waiting: store")
            return False
        except MemoryUnreadable as error:
            self._tell_unreadable(error)
            self._worker.vitals.attempted(success=False, state="refused: memory unreadable")
            return False
        self._unreached = self._unreadable = ""
        foreign = said.verdict is StoreVerdict.FOREIGN
        self._worker.vitals.attempted(success=not foreign, state="held: foreign_store" if foreign else None)
        return not foreign

    async def _stand_guard(self) -> None:
        while not await self._worker.stopped(_GUARD_EVERY):
            try:
                said = await self.guard.look(self._worker.clock.now())
                if said.verdict is StoreVerdict.UNNAMED and self._names_the_store():
                    await self.guard.found(FencedStore(self._store, self._leader_key, self.elector.state.term))
            except (StoreAway, StoreError) as error:
                log.debug(f"the store's identity cannot be read: {error}")
                continue
            except MemoryUnreadable as error:
                self._tell_unreadable(error)
                continue  # what was judged before still holds: a file that broke meanwhile deposes nobody
            self._unreadable = ""
            foreign = said.verdict is StoreVerdict.FOREIGN
            withheld = LossReason.FOREIGN in self.elector.state.withheld
            if foreign and not withheld:
                self.elector.leave(LossReason.FOREIGN)
            elif withheld and not foreign:
                self.elector.go_on(LossReason.FOREIGN)

    def _own_term(self) -> FencedStore | None:
        """The store as this server may write it now; None while it does not lead."""
        state = self.elector.state
        leads = state.phase is ElectionPhase.LEADING and state.term
        return FencedStore(self._upkeep, self._leader_key, state.term) if leads else None

    def _tell_unreadable(self, error: MemoryUnreadable) -> None:
        if self._unreadable != str(error):
            log.error(str(error))
        self._unreadable = str(error)

    def _names_the_store(self) -> bool:
        """With an inventory it is the syncer that does, once the store is filled."""
        return self.elector.state.phase is ElectionPhase.LEADING and self._worker.config.inventory.database is None

    def _dead(self, other: Leader | Server) -> bool:
        return certainly_dead(other, self._me, is_gone)

    def _show(self, shown: LeadershipCell) -> None:
        self._shown.write(shown)
        self._metrics.show(shown)

    def _attempted(self, state: Election, *, success: bool) -> None:
        ttl = self._worker.config.server.ttl
        now = self._worker.clock.now()
        # A leader must renew within its TTL, a follower look within twice that: else it does not do its job.
        self._worker.vitals.duty = now + (ttl if state.phase is ElectionPhase.LEADING else 2 * ttl)
        said = self._taken and "refused: name taken"
        self._worker.vitals.attempted(success=success, state=said or _state(state, success=success))

    def _doubted(self, term: int) -> bool:
        return is_over(term, [cell.read() for cell in self._found])

    def _told(self, term: int, sentence: str) -> None:
        self._metrics.transitions.inc()
        record = Decision(self._worker.clock.wall(), "elector", "lead", "leader", "told", sentence, term=term)
        self._worker.decisions.write([record])

    def _name_taken(self, sentence: str) -> None:
        if sentence and not self._taken:
            log.error(sentence)
            self.elector.leave(LossReason.DUPLICATE)
        elif self._taken and not sentence:
            log.info(f"the name {self._me.name} is ours again")
            self.elector.go_on(LossReason.DUPLICATE)
        self._taken = sentence

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
            database=not any(one.state == "waiting: database" for one in workers),
            warm=all(one.warm for one in workers if one.phase != "completed"),
            stands=self.elector.state.phase is not ElectionPhase.RESTING,
            workers={one.name: WorkerHealth(_is_healthy(one), one.state) for one in workers if one.name != "elector"},
        )

    async def _look_after_itself(self) -> None:
        while not await self._worker.stopped(_HEALTH_EVERY):
            self._heed_pause()
            now = self._worker.clock.now()
            self._ability = self._ability.seen(self._report(), now)
            better = successor(self._ability, self.registrar.others, now, self._patience)
            if better is not None and self.elector.state.phase is ElectionPhase.LEADING:
                log.warning(f"this server cannot do a leader's work, and {better} says that it can: it gives way")
                self.elector.leave(LossReason.GAVE_WAY)

    async def _about(self, _request: Request, _who: Who) -> Any:
        now, shown = self._worker.clock.now(), self._shown.read() or LeadershipCell("following")
        seen, error = None, ""
        try:
            seen = await self._store_seen()
        except (StoreAway, StoreError) as away:
            error = str(away)
        servers = {**self.registrar.others, self._me.name: self._report()}
        refusal = self.guard.refusal
        about = ElectorView(
            name=self._me.name,
            phase=shown.phase,
            leader=shown.leader,
            term=shown.term,
            since_s=(now - shown.since).total_seconds(),
            lease_s=max(0.0, (shown.work_until - now).total_seconds()) if shown.work_until else 0.0,
            ttl_s=self._worker.config.server.ttl.total_seconds(),
            followers={name: one.eligible for name, one in servers.items() if name != shown.leader},
            fleet=self.guard.fleet,
            refused=self._taken or self._unreadable,
            paused=self._pause_told(),
            store=seen,
            store_error=error,
            refuses_store=refusal.sentence if refusal else "",
            opens=refusal.opens if refusal else "",
        )
        return msgspec.to_builtins(about)

    async def _host(self, request: Request, _who: Who) -> Any:
        name = str(request.args.get("name", ""))
        try:
            return msgspec.to_builtins(await hosts.seen(self._store, self._region, name))
        except (StoreAway, StoreError, NameRefused) as error:
            raise Declined(str(error)) from error

    def _pause_told(self) -> str:
        pause = self._book.intents.pause
        return f"{pause.who}{pause.lasting}: “{pause.why}”" if pause and self._is_pause_wanted() else ""

    async def _store_seen(self) -> StoreSeen:
        sent = self._worker.clock.now()
        members = await self._store.status()
        took = (self._worker.clock.now() - sent).total_seconds() * 1_000
        newest = max(members, key=lambda member: member.revision)
        total = max(len(members), len(self._worker.config.store.endpoints))
        compacted = self.compactor.compacted
        ago = (sent - compacted).total_seconds() if compacted else None
        return StoreSeen(newest.version, total, len(members), newest.revision, round(took, 1), ago)

    async def _step_down(self, request: Request, who: Who) -> str:
        if self.elector.state.phase is not ElectionPhase.LEADING:
            raise Declined(f"{self._me.name} does not lead; holdfast leader tells who does")
        self._told_asked("step-down", request_intent(request, who, self._worker.clock))
        self.elector.leave(LossReason.STEPPED_DOWN, 2 * self._worker.config.server.ttl)
        return f"{self._me.name} steps down"

    async def _pause(self, request: Request, who: Who) -> str:
        asked = request_intent(request, who, self._worker.clock)
        self._book.write(WorkerIntents(pause=asked))
        self._told_asked("pause", asked)
        self._heed_pause()
        return f"{self._me.name} neither leads nor campaigns{asked.lasting}; end it with: holdfast resume server"

    async def _resume(self, request: Request, who: Who) -> str:
        if not self._is_pause_wanted():
            raise Declined(f"{self._me.name} is not paused")
        self._book.write(WorkerIntents())
        self._told_asked(
            "resume", WorkerIntent(who.name, str(request.args.get("reason", "")), self._worker.clock.wall())
        )
        self._heed_pause()
        return f"{self._me.name} takes part in elections again"

    def _heed_pause(self) -> None:
        """An operator's pause outlives the process; it ends when it is told to, or runs out. Looked at again and
        again, so that of two pauses the later one counts."""
        wanted, paused = self._is_pause_wanted(), LossReason.PAUSED in self.elector.state.withheld
        if wanted and not paused:
            self.elector.leave(LossReason.PAUSED)
        elif paused and not wanted:
            log.info(f"{self._me.name} takes part in elections again: its pause is over")
            self.elector.go_on(LossReason.PAUSED)

    def _is_pause_wanted(self) -> bool:
        pause = self._book.intents.pause
        return pause is not None and not pause.is_over(self._worker.clock.wall())

    def _told_asked(self, what: str, asked: WorkerIntent) -> None:
        why = f": “{asked.why}”" if asked.why else ""
        sentence = f"{asked.who} asked {self._me.name} to {what}{asked.lasting}{why}"
        log.info(sentence)
        record = Decision(asked.at, "elector", what, "leader", "asked", sentence)
        self._worker.decisions.write([record])


def _hurried(config: Config) -> StoreConfig:
    """The elector gives a call up after `rpc_timeout`: by then the client must have tried another member, too."""
    return msgspec.structs.replace(
        config.store, call_deadline=min(config.store.call_deadline, config.server.rpc_timeout)
    )


def _state(state: Election, *, success: bool) -> str:
    if not success and state.phase is not ElectionPhase.LEADING:
        return "waiting: store"
    leader = state.seen.leader if state.seen and state.seen.term else None
    return f"following {leader.name}" if state.phase is ElectionPhase.FOLLOWING and leader else state.phase.value


def _is_healthy(worker: WorkerReport) -> bool:
    return not (worker.crash_looping or worker.state.startswith("waiting"))


async def elect(worker: Worker) -> None:
    await ElectorJob(worker).run()
