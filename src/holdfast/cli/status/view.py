"""State of all daemons on this machine, as `holdfast status` shows it: asked through their control sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.agent.report.summary import AgentDetails
from holdfast.cli.common.control_socket import CannotTell, label, no_daemon, roles
from holdfast.cli.status import observed
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import DaemonReport, report
from holdfast.server.election.views import ElectorView


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
    servers: Sequence[ElectorView] = ()
    agents: Sequence[AgentDetails] = ()
    seen: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Hosts and endpoints as the leader's status workers see them, if the leader runs here."""


async def read_status(runtime: Path) -> StatusView:
    names = roles(runtime)
    if not names:
        raise no_daemon(runtime)
    reports: list[DaemonReport] = []
    silent, gone = [], []
    held: dict[str, list[dict[str, Any]]] = {}
    servers, agents = [], []
    seen: dict[str, dict[str, Any]] = {}
    for role in names:
        socket, name = runtime / f"{role}.sock", label(role)
        answer = await ask(socket, Request("status"), timeout=2.0)
        if answer.error:
            silent.append(name)
            one = _from_board(runtime, role, answer.error)
            if not _is_running(one.supervisor_pid):
                gone.append(name)
                one = _without_state(one)
            reports.append(msgspec.structs.replace(one, role=name))
            continue
        one = msgspec.convert(answer.result, DaemonReport)
        reports.append(msgspec.structs.replace(one, role=name))
        for worker in one.workers:
            if worker.state.startswith("held"):
                outstanding = await _query_worker(socket, worker.name, "held")
                held[f"{name}/{worker.name}"] = outstanding["objects"] if outstanding else []
            if worker.name == "elector" and (about := await _query_worker(socket, worker.name, "about")):
                servers.append(msgspec.convert(about, ElectorView))
            if worker.name == "peers" and (about := await _query_worker(socket, worker.name, "about")):
                agents.append(msgspec.convert(about, AgentDetails))
            if worker.name in (observed.AGENTS, observed.ENDPOINTS) and worker.pid is not None:
                about = await _query_worker(socket, worker.name, "about")
                if about and about["leading"]:
                    seen[worker.name] = about
    return StatusView(reports, held, silent, gone, servers, agents, seen)


async def _query_worker(socket: Path, worker: str, command: str) -> Any:
    """Return the answer of one worker; None if it does not answer."""
    answer = await ask(socket, Request("tell", {"do": command}, worker))
    return None if answer.error else answer.result


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
