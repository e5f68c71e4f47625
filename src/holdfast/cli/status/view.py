"""State of all daemons on this machine, as `holdfast status` shows it: asked through their control sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.agent.report.summary import AgentDetails
from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.commands.troubles import FrontendTrouble
from holdfast.cli.common.control_socket import CannotTell, label, no_daemon, roles
from holdfast.cli.common.terms import TermOnBoard, read_terms
from holdfast.cli.status import observed
from holdfast.model.control.identity import StoreRefusal
from holdfast.model.control.intent import Intent, IntentName
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Answer, Request, ask
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import DaemonReport, WorkerReport, report
from holdfast.server.election.views import ElectorView, FleetVerdict
from holdfast.store.balancers import BalancerSeen

SYNCER_WORKER = "syncer"
_DESCRIBED = frozenset({"elector", "peers", "vips", observed.AGENTS, observed.ENDPOINTS})
"""Workers that describe their daemon in the answer to `about`."""
BLOCKED_S = 3.0
"""A worker whose last pulse is older is blocked or frozen."""
_ANSWER_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of the page. `needs_action` is False if it recovers by itself."""

    subject: str
    sentence: str
    inspect: str = ""
    release: str = ""
    fix: str = ""
    needs_action: bool = True
    known: bool = True
    """False while it keeps the page from telling whether all is well: a start, a wait, a process that is silent."""


@dataclass(frozen=True, slots=True)
class StatusView:
    """Everything that the page shows."""

    reports: Sequence[DaemonReport]
    held: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Changes that gates hold, per worker (DAEMON/WORKER)."""
    silent: Sequence[str] = ()
    """Daemons whose supervisor does not answer; their report comes from the board."""
    gone: Sequence[str] = ()
    """Silent daemons whose supervisor has exited."""
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """Workers (DAEMON/WORKER) that show a pulse and do not answer, each with the error."""
    servers: Sequence[ElectorView] = ()
    agents: Sequence[AgentDetails] = ()
    balancers: Mapping[str, StoreRefusal] = field(default_factory=dict)
    """Balancers that do not take the store as it is, by name."""
    verdict: FleetVerdict | None = None
    """Verdict of the leader's syncer on inventory and store, if the leader runs here and has one."""
    seen: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Hosts and endpoints as the leader's status workers see them, if the leader runs here."""
    intents: Sequence[Intent] = ()
    """What operators asked for at run time, as the workers here obey it; each once."""
    terms: Mapping[str, TermOnBoard] = field(default_factory=dict)
    """Terms of servers here whose elector does not answer, from their boards; by daemon."""
    unreached: Sequence[str] = ()
    """Balancers that serve from a file, so that no pause of the fleet reaches them."""
    troubles: Sequence[FrontendTrouble] = ()
    """Frontends of balancers here that do not serve, or not with all of their backends."""
    deletes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Applied deletes of the last hour, by daemon and kind; only daemons that deleted something."""
    pruning_fails: str = ""
    """Reason why the leader's syncer cannot prune the history of the inventory; empty while it can."""
    vips: Sequence[BalancerSeen] = ()
    """Balancers of the fleet, as they report to the store, and those here."""


async def read_status(runtime: Path) -> StatusView:
    names = roles(runtime)
    if not names:
        raise no_daemon(runtime)
    reports: list[DaemonReport] = []
    silent, gone = [], []
    answers = _Answers()
    for role in names:
        socket, name = runtime / f"{role}.sock", label(role)
        answer = await ask(socket, Request("status"), timeout=_ANSWER_WITHIN_S)
        if answer.error:
            silent.append(name)
            one = _from_board(runtime, role, answer.error)
            if not _is_running(one.supervisor_pid):
                gone.append(name)
                one = _without_state(one)
            reports.append(msgspec.structs.replace(one, role=name))
            continue
        one = msgspec.convert(answer.result, DaemonReport)
        await answers.add_deletes(socket, name)
        reports.append(msgspec.structs.replace(one, role=name))
        for worker in one.workers:
            await answers.add(socket, name, worker)
    return StatusView(
        reports,
        answers.held,
        silent,
        gone,
        answers.unanswered,
        answers.servers,
        answers.agents,
        answers.balancers,
        answers.verdict,
        answers.seen,
        sorted(answers.intents.values(), key=lambda one: str(one.name)),
        {daemon: term for daemon, term in read_terms(runtime).items() if daemon not in {*answers.electors, *gone}},
        answers.unreached,
        answers.troubles,
        answers.deletes,
        answers.pruning_fails,
        [one for _, one in sorted((await _balancers(runtime, names, answers) | answers.vips).items())],
    )


async def _balancers(runtime: Path, names: Sequence[str], answers: _Answers) -> dict[str, BalancerSeen]:
    """Return the balancers that report to the store, as a server here reads them; none while it cannot."""
    server = next((role for role in names if role.rpartition("/")[2] == "server"), None)
    if server is None or not any(one.store is not None for one in answers.servers):
        return {}
    answer = await ask(runtime / f"{server}.sock", Request("balancers"), timeout=_ANSWER_WITHIN_S)
    found = [] if answer.error else msgspec.convert(answer.result, list[BalancerSeen])
    return {one.name: one for one in found}


@dataclass
class _Answers:
    """Answers of the workers, as far as they came."""

    held: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)
    servers: list[ElectorView] = field(default_factory=list)
    electors: set[str] = field(default_factory=set)
    """Daemons whose elector has answered."""
    agents: list[AgentDetails] = field(default_factory=list)
    balancers: dict[str, StoreRefusal] = field(default_factory=dict)
    verdict: FleetVerdict | None = None
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    intents: dict[IntentName, Intent] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)
    troubles: list[FrontendTrouble] = field(default_factory=list)
    deletes: dict[str, Mapping[str, int]] = field(default_factory=dict)
    pruning_fails: str = ""
    vips: dict[str, BalancerSeen] = field(default_factory=dict)

    async def add_deletes(self, socket: Path, daemon: str) -> None:
        """Ask a supervisor for its deletes of the last hour; one of an older release does not know them."""
        answer = await ask(socket, Request("deletes"), timeout=_ANSWER_WITHIN_S)
        if not answer.error and answer.result:
            self.deletes[daemon] = msgspec.convert(answer.result, dict[str, int])

    async def add(self, socket: Path, daemon: str, worker: WorkerReport) -> None:
        """Ask one worker; not one whose pulse shows that it would not answer."""
        if worker.pulse_s is not None and worker.pulse_s > BLOCKED_S:
            return
        if worker.pid is not None:  # one that obeys no intents does not know the command
            obeyed = msgspec.convert(await _query_worker(socket, worker.name, "intents") or [], list[Intent])
            self.intents |= {one.name: one for one in obeyed}
        is_held = worker.state.startswith("held")
        if is_held or worker.name == SYNCER_WORKER:  # a verdict stands even while nothing is held
            outstanding = await _query_worker(socket, worker.name, "held") or {}
            self.verdict = msgspec.convert(outstanding.get("verdict"), FleetVerdict | None) or self.verdict
            self.pruning_fails = outstanding.get("pruning_fails") or self.pruning_fails
            if is_held:
                self.held[f"{daemon}/{worker.name}"] = outstanding.get("objects", [])
        if worker.name in _DESCRIBED and worker.pid is not None:
            answer = await _tell(socket, worker.name, "about")
            if answer.error:
                self.unanswered[f"{daemon}/{worker.name}"] = answer.error
            else:
                self._describe(worker.name, answer.result)
                if worker.name == VIPS_WORKER:
                    await self._add_vips(socket, answer.result["name"])
                self.electors |= {daemon} if worker.name == "elector" else set()

    async def _add_vips(self, socket: Path, balancer: str) -> None:
        shown = await _query_worker(socket, VIPS_WORKER, "balancer")
        if shown is not None:
            states = {one["name"]: one["state"] for one in shown["frontends"]}
            self.vips[balancer] = BalancerSeen(balancer, __version__, states, shown["digests"]["table"])

    def _describe(self, worker: str, about: dict[str, Any]) -> None:
        match worker:
            case "elector":
                self.servers.append(msgspec.convert(about, ElectorView))
            case "peers":
                self.agents.append(msgspec.convert(about, AgentDetails))
            case "vips":
                self.troubles += msgspec.convert(about.get("troubles", []), list[FrontendTrouble])
                if not about["uses_store"]:
                    self.unreached.append(about["name"])
                if about["store_refusal"] is not None:
                    self.balancers[about["name"]] = msgspec.convert(about["store_refusal"], StoreRefusal)
            case _:
                if about["leading"]:
                    self.seen[worker] = about


async def _query_worker(socket: Path, worker: str, command: str) -> Any:
    """Return the answer of one worker; None if it does not answer."""
    answer = await _tell(socket, worker, command)
    return None if answer.error else answer.result


async def _tell(socket: Path, worker: str, command: str) -> Answer:
    return await ask(socket, Request("tell", {"do": command}, worker), timeout=_ANSWER_WITHIN_S)


def _is_running(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def _without_state(one: DaemonReport) -> DaemonReport:
    """Drop the vitals of a supervisor that has exited; they are stale."""
    workers = [msgspec.structs.replace(worker, state="gone", pulse_s=None, pid=None) for worker in one.workers]
    return msgspec.structs.replace(one, workers=workers)


def _from_board(runtime: Path, role: str, error: str) -> DaemonReport:
    """Read the board of a daemon whose supervisor does not answer."""
    try:
        board = Board.open(runtime / f"{role}.board", read_only=True)
    except BoardError as unreadable:
        raise CannotTell(f"{error}; {unreadable}") from unreadable
    return report(board, role, __version__, SystemClock().now())
