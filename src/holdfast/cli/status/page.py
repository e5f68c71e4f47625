"""`holdfast status`: problems first, each with its next command; then every worker with its pulse.

Exit codes: 0 healthy, 1 needs you, 2 cannot tell.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast import __version__
from holdfast.agent.report.summary import AgentDetails as AgentAbout
from holdfast.cli.common.control_socket import CANNOT_TELL, CannotTell, label, nobody, roles, runtime_flag
from holdfast.cli.common.format import clock, count, short
from holdfast.cli.status import observed
from holdfast.cli.status.agents import agent_lines, agent_problems
from holdfast.cli.status.problem import Problem
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import DaemonReport, WorkerReport, report
from holdfast.server.election.views import ElectorView

NEEDS_YOU = 1
_FLEET = 12
"""So many characters of a fleet id tell fleets apart."""
LONG_WAIT_S = 60.0
"""Who waits for longer needs somebody: what comes back by itself is back by then."""

_OPEN_BY_THEMSELVES = ("warm_up",)
"""Gates that belong to every start."""


@dataclass(frozen=True, slots=True)
class StatusPage:
    """All that the page shows."""

    reports: Sequence[DaemonReport]
    held: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Per worker, as DAEMON/WORKER, what its gates hold."""
    silent: Sequence[str] = ()
    """Daemons whose supervisor does not answer; their report comes from the board."""
    gone: Sequence[str] = ()
    """Those of them whose supervisor is no more."""
    servers: Sequence[ElectorView] = ()
    """What the electors here say of the store and of leadership."""
    agents: Sequence[AgentAbout] = ()
    """What the agents here say of themselves."""
    seen: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """What the status workers of the leader say of hosts and endpoints, if it runs here."""


@click.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@click.option("-w", "--watch", is_flag=True, help="Show it again every second.")
@click.option("--wait", is_flag=True, help="Wait until everything is healthy, at most a minute.")
@runtime_flag
def status(output: str, watch: bool, wait: bool, runtime: Path) -> None:
    """What runs here, how it is, and what needs you.

    Exits with 0 when all is healthy, 1 when something needs you, 2 when that cannot be told.
    """
    deadline = time.monotonic() + 60
    while True:
        view = asyncio.run(look(runtime))
        done = not wait or is_well(view) or time.monotonic() >= deadline
        if done or watch:
            _print(view, output, clear=watch)
        if done and not watch:
            raise click.exceptions.Exit(exit_code(view))
        time.sleep(1)


def _print(view: StatusPage, output: str, *, clear: bool) -> None:
    if clear:
        click.clear()
    if output == "json":
        said = {
            "daemons": view.reports,
            "held": view.held,
            "servers": view.servers,
            "agents": view.agents,
            "seen": view.seen,
        }
        click.echo(json.dumps(msgspec.to_builtins(said), indent=2))
    else:
        click.echo(render(view, datetime.now(UTC)), nl=False)


async def look(runtime: Path) -> StatusPage:
    names = roles(runtime)
    if not names:
        raise nobody(runtime)
    reports, silent, gone = [], [], []
    held: dict[str, list[dict[str, Any]]] = {}
    servers, agents = [], []
    seen: dict[str, dict[str, Any]] = {}
    for role in names:
        said = await ask(runtime / f"{role}.sock", Request("status"), timeout=2.0)
        if said.error:
            silent.append(label(role))
            reports.append(_named(_from_board(runtime, role, said.error), role))
            if not _lives(reports[-1].supervisor_pid):
                gone.append(label(role))
                reports[-1] = _ended(reports[-1])
            continue
        one = _named(msgspec.convert(said.result, DaemonReport), role)
        reports.append(one)
        for worker in one.workers:
            if worker.state.startswith("held"):
                request = Request("tell", {"do": "held"}, worker.name)
                answer = await ask(runtime / f"{role}.sock", request)
                held[f"{one.role}/{worker.name}"] = [] if answer.error else answer.result["objects"]
            if worker.name == "elector":
                answer = await ask(runtime / f"{role}.sock", Request("tell", {"do": "about"}, "elector"))
                servers += [] if answer.error else [msgspec.convert(answer.result, ElectorView)]
            if worker.name == "peers":
                answer = await ask(runtime / f"{role}.sock", Request("tell", {"do": "about"}, "peers"))
                agents += [] if answer.error else [msgspec.convert(answer.result, AgentAbout)]
            if worker.name in (observed.AGENTS, observed.ENDPOINTS) and worker.pid is not None:
                answer = await ask(runtime / f"{role}.sock", Request("tell", {"do": "about"}, worker.name))
                if not answer.error and answer.result["leading"]:
                    seen[worker.name] = answer.result
    return StatusPage(reports, held, silent, gone, servers, agents, seen)


def _named(one: DaemonReport, role: str) -> DaemonReport:
    return msgspec.structs.replace(one, role=label(role))


def _lives(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def _ended(one: DaemonReport) -> DaemonReport:
    """What its workers last showed says nothing about now."""
    ended = [msgspec.structs.replace(worker, state="gone", pulse_s=None, pid=None) for worker in one.workers]
    return msgspec.structs.replace(one, workers=ended)


def _from_board(runtime: Path, role: str, error: str) -> DaemonReport:
    """At 3 a.m. the supervisor may be what is broken: the board can be read without it."""
    try:
        board = Board.open(runtime / f"{role}.board", read_only=True)
    except BoardError as unreadable:
        raise CannotTell(f"{error}; {unreadable}") from unreadable
    return report(board, role, __version__, SystemClock().now())


def exit_code(view: StatusPage) -> int:
    if view.silent:
        return CANNOT_TELL
    return NEEDS_YOU if any(problem.needs_you for problem in problems(view)) else 0


def is_well(view: StatusPage) -> bool:
    """Whether there is nothing to wait for: a worker that has only just been started has not shown yet how it is."""
    starting = any(worker.state == "starting" for one in view.reports for worker in one.workers)
    return exit_code(view) == 0 and not starting


def problems(view: StatusPage) -> list[Problem]:
    found = [_gone(one) if one.role in view.gone else _silent(one) for one in view.reports if one.role in view.silent]
    if view.servers and not any(server.leader for server in view.servers):
        found.append(Problem("leader", "nobody leads: nothing is written until somebody does", look="holdfast leader"))
    refusals = dict.fromkeys((server.refuses_store, server.opens) for server in view.servers if server.refuses_store)
    found += [Problem("store", sentence, look="holdfast doctor", open=opens) for sentence, opens in refusals]
    for server in view.servers:
        found += _out_of_election(server)
    for agent in view.agents:
        found += agent_problems(agent)
    for one in view.reports:
        for worker in one.workers:
            found += _troubles(worker, view.held.get(f"{one.role}/{worker.name}", []))
    found += [Problem(who, sentence, look=where) for who, sentence, where in observed.troubles(view.seen)]
    return sorted(found, key=lambda problem: not problem.needs_you)


def _out_of_election(server: ElectorView) -> list[Problem]:
    found = []
    if server.refused:
        found.append(Problem(server.name, f"takes no part in elections: {server.refused}", look="holdfast doctor"))
    if server.paused:
        sentence = f"takes no part in elections: paused by {server.paused}"
        found.append(Problem(server.name, sentence, open="holdfast resume server", needs_you=False))
    return found


def _gone(one: DaemonReport) -> Problem:
    sentence = f"it is gone: its supervisor (pid {one.supervisor_pid}) ended without a word, and its workers with it"
    return Problem(one.role, f"{sentence}; start it again, what is programmed stays", look="its log")


def _silent(one: DaemonReport) -> Problem:
    pulse = "never seen" if one.supervisor_pulse_s is None else f"last pulse {short(one.supervisor_pulse_s)} ago"
    sentence = f"its supervisor (pid {one.supervisor_pid}) does not answer, {pulse}; its workers end without it"
    return Problem(one.role, sentence, look=f"ps -o pid,stat,wchan:20,cmd -p {one.supervisor_pid}")


def _troubles(worker: WorkerReport, held: list[dict[str, Any]]) -> list[Problem]:
    name = worker.name
    found = []
    if worker.crash_looping:
        sentence = f"crash-looping, {worker.restarts} restarts in 24 h; last it {worker.trouble} ({worker.evidence})"
        found.append(Problem(name, sentence, look=f"holdfast history worker/{name}"))
    elif worker.phase in ("due", "ending", "killed") and worker.trouble:
        sentence = f"{worker.trouble} ({worker.evidence}); it is being replaced"
        found.append(Problem(name, sentence, needs_you=False))
    if worker.state.startswith("waiting"):
        since = f" (for {clock(worker.waiting_s)})" if worker.waiting_s else ""
        is_long = (worker.waiting_s or 0.0) > LONG_WAIT_S
        sentence = f"{worker.state}{since}; what is programmed stays"
        found.append(Problem(name, sentence, look="holdfast doctor" if is_long else "", needs_you=is_long))
    if worker.state.startswith("refused"):
        found.append(Problem(name, worker.state, look="holdfast doctor"))
    if worker.state.startswith("failing"):
        found.append(Problem(name, f"objects are {worker.state}", look=f"holdfast plan {name}"))
    if worker.verdict == "overdue":
        found.append(Problem(name, "no full comparison finished in three intervals", look=f"holdfast plan {name}"))
    return found + _gates(name, held)


def _gates(name: str, held: list[dict[str, Any]]) -> list[Problem]:
    """One problem per gate and reason, with the longest wait."""
    groups: dict[tuple[str, str, str, str], float] = {}
    for one in held:
        if one["gate"]:
            also = f"; {one['also']}" if one.get("also") else ""
            key = one["gate"], f"{one['reason']}{also}", one["opens"], one.get("look", f"holdfast plan {name}")
            groups[key] = max(groups.get(key, 0.0), one["since_s"])
    return [
        Problem(
            name,
            f"held by {gate} {clock(since)}: {reason}",
            look=look,
            open=opens,
            needs_you=gate not in _OPEN_BY_THEMSELVES,
        )
        for (gate, reason, opens, look), since in groups.items()
    ]


def render(view: StatusPage, now: datetime) -> str:
    """The whole page. Pure, so that a golden test can hold it to its shape."""
    found = problems(view)
    needs = sum(problem.needs_you for problem in found)
    lines = [f"holdfast {view.reports[0].version}   {_whose(view)}   {now:%H:%M:%S}Z{_seen_from(view.servers)}", ""]
    lines.append(f"NEEDS YOU  {needs}        handled by itself  {len(found) - needs}")
    for number, problem in enumerate(found, 1):
        lines += _problem(problem, number)
    lines += _leadership(view.servers)
    lines += agent_lines(view.agents)
    for one in view.reports:
        lines += ["", *_workers(one)]
    lines += observed.lines(view.seen)
    return "\n".join(lines) + "\n"


def _whose(view: StatusPage) -> str:
    """The fleet, if a server here knows it, else the daemons."""
    fleet = next((server.fleet for server in view.servers if server.fleet), "")
    return f"fleet {fleet[:_FLEET]}" if fleet else ", ".join(one.role for one in view.reports)


def _seen_from(servers: Sequence[ElectorView]) -> str:
    one = _speaker(servers)
    return f"   seen from {one.name} ({'leader' if one.phase == 'leading' else one.phase})" if one else ""


def _speaker(servers: Sequence[ElectorView]) -> ElectorView | None:
    """The server that the page speaks for: the one that leads, else the first."""
    return next((server for server in servers if server.phase == "leading"), servers[0] if servers else None)


def _leadership(servers: Sequence[ElectorView]) -> list[str]:
    """STORE and LEADER, as the server sees them that leads, else the first."""
    one = _speaker(servers)
    if one is None:
        return []
    return ["", f"STORE    {_store(one)}", f"LEADER   {_leader(one)}"]


def _store(one: ElectorView) -> str:
    store = one.store
    if store is None:
        return f"away: {one.store_error}"
    return (
        f"etcd {store.version}   {store.answering} of {store.members} members   rev {store.revision:,}   "
        f"round trip {store.round_trip_ms:.0f} ms{_compacted(store.compacted_ago_s)}"
    )


def _compacted(ago: float | None) -> str:
    return "" if ago is None else f"   compacted {short(ago)} ago"


def _leader(one: ElectorView) -> str:
    if not one.leader:
        return f"nobody leads   seen from {one.name} ({one.phase})"
    followers = ", ".join(f"{name} {'able' if able else 'unable'}" for name, able in sorted(one.followers.items()))
    tail = f"     followers: {followers}" if followers else "     no followers"
    if one.phase != "leading":
        return f"{one.leader}   seen from {one.name} ({one.phase}){tail}"
    return f"{one.leader}   term {one.term}   {short(one.since_s)}   lease {one.lease_s:.1f} of {one.ttl_s:g} s{tail}"


def _problem(problem: Problem, number: int) -> list[str]:
    mark = str(number) if problem.needs_you else "·"
    lines = [f" {mark} {problem.who:<16} {problem.sentence}"]
    steps = [f"look: {problem.look}" if problem.look else "", f"open: {problem.open}" if problem.open else ""]
    if any(steps):
        lines.append(" " * 20 + "     ".join(filter(None, steps)))
    return lines


def _workers(one: DaemonReport) -> list[str]:
    title = f"WORKER ({one.role})"
    wide = max([18, *(len(worker.state) for worker in one.workers)])
    lines = [f"{title:<18}{'PULSE':>8}   {'STATE':<{wide}}  {'BACKLOG':>9}{'LAG':>8}   RESTARTS 24h"]
    for worker in one.workers:
        pulse = "–" if worker.pulse_s is None else short(worker.pulse_s)
        lag = "–" if worker.lag_s is None else short(worker.lag_s)
        row = f"{worker.name:<18}{pulse:>8}   {worker.state:<{wide}}  {count(worker.backlog):>9}{lag:>8}"
        lines.append(f"{row}   {worker.restarts}{_last_trouble(worker)}")
    return lines


def _last_trouble(worker: WorkerReport) -> str:
    if not worker.trouble or worker.trouble_ago_s is None:
        return ""
    back = f", back in {short(worker.back_after_s)}" if worker.back_after_s is not None else ""
    return f"  {worker.trouble} {short(worker.trouble_ago_s)} ago{back}"
