"""`holdfast status`: problems first, each with its next command; then store, leader, workers and the fleet.

Exit codes: 0 healthy, 1 something needs action, 2 unknown because a daemon does not answer.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from holdfast.agent.report.summary import AgentDetails
from holdfast.cli.common.control_socket import CANNOT_TELL, runtime_flag
from holdfast.cli.common.format import count, output_flag, short
from holdfast.cli.common.terms import TermOnBoard, stale_term
from holdfast.cli.status import observed
from holdfast.cli.status.problems import problems
from holdfast.cli.status.view import Problem, StatusView, read_status
from holdfast.model.control.intent import IntentKind
from holdfast.runtime.daemon.report import DaemonReport, WorkerReport
from holdfast.server.election.views import ElectorView

NEEDS_ACTION = 1
_FLEET_ID = 12
"""Characters of a fleet id that are shown."""
_STATE = 40
"""Characters of a worker's state that are shown; a problem shows all of it."""
_INDENT = " " * 20
_STALE_SHARE = 0.5
"""Share of the TTL without an answer of the store after which the age of the leadership is shown."""


@click.command()
@output_flag
@click.option("-w", "--watch", is_flag=True, help="Refresh every second.")
@click.option("--wait", is_flag=True, help="Wait until everything is healthy, for at most a minute.")
@runtime_flag
def status(output: str, watch: bool, wait: bool, runtime: Path) -> None:
    """Show problems and how to solve them, the leader, and every worker on this machine.

    Exits with 0 if everything is healthy, 1 if something needs action, 2 if a daemon does not answer.
    """
    deadline = time.monotonic() + 60
    while True:
        view = asyncio.run(read_status(runtime))
        done = not wait or is_healthy(view) or time.monotonic() >= deadline
        if done or watch:
            _print(view, output, clear=watch)
        if done and not watch:
            raise click.exceptions.Exit(exit_code(view))
        time.sleep(1)


def _print(view: StatusView, output: str, *, clear: bool) -> None:
    if clear:
        click.clear()
    if output == "json":
        document = {
            "daemons": view.reports,
            "held": view.held,
            "servers": view.servers,
            "agents": view.agents,
            "balancers": view.balancers,
            "verdict": view.verdict,
            "seen": view.seen,
            "intents": view.intents,
            "terms": view.terms,
            "unreached": view.unreached,
        }
        click.echo(json.dumps(msgspec.to_builtins(document), indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo(render(view, datetime.now(UTC), width), nl=False)


def exit_code(view: StatusView) -> int:
    if view.silent:
        return CANNOT_TELL
    return NEEDS_ACTION if any(problem.needs_action for problem in problems(view)) else 0


def is_healthy(view: StatusView) -> bool:
    """Return True if there is nothing to wait for: no problem, and no worker that is still starting."""
    starting = any(worker.state == "starting" for one in view.reports for worker in one.workers)
    return exit_code(view) == 0 and not starting


def render(view: StatusView, now: datetime, width: int | None = None) -> str:
    """Render the page; sentences wrap at `width`. Pure, so that a golden test can check all of it."""
    found = problems(view)
    needed = sum(problem.needs_action for problem in found)
    lines = [f"holdfast {view.reports[0].version}   {_title(view)}   {now:%H:%M:%S}Z{_seen_from(view.servers)}", ""]
    lines.append(f"NEEDS YOU  {needed}        handled by itself  {len(found) - needed}")
    for number, problem in enumerate(found, 1):
        lines += _problem(problem, number, width)
    lines += _paused(view)
    lines += _leadership(view.servers, view.terms)
    lines += agent_lines(view.agents)
    for one in view.reports:
        lines += ["", *_workers(one)]
    lines += observed.lines(view.seen)
    return "\n".join(lines) + "\n"


def _title(view: StatusView) -> str:
    """Return the fleet id if a server here knows it, else the daemons."""
    fleet = next((server.fleet for server in view.servers if server.fleet), "")
    return f"fleet {fleet[:_FLEET_ID]}" if fleet else ", ".join(one.role for one in view.reports)


def _seen_from(servers: Sequence[ElectorView]) -> str:
    one = _viewpoint(servers)
    return f"   seen from {one.name} ({'leader' if one.phase == 'leading' else one.phase})" if one else ""


def _viewpoint(servers: Sequence[ElectorView]) -> ElectorView | None:
    """Return the server whose view the page shows: the leader, else the first."""
    return next((server for server in servers if server.phase == "leading"), servers[0] if servers else None)


def _paused(view: StatusView) -> list[str]:
    """Return the block of pauses: what, until when, by whom, and why."""
    found = [one for one in view.intents if one.what is IntentKind.PAUSE]
    if not found:
        return []
    wide = max(len(str(one.scope)) for one in found)
    rows = [f"{one.scope!s:<{wide}}   {one.lasting.strip() or 'no end'}   by {one.who}: “{one.why}”" for one in found]
    return ["", *(f"{'PAUSED' if not number else '':<9}{row}" for number, row in enumerate(rows))]


def _leadership(servers: Sequence[ElectorView], terms: Mapping[str, TermOnBoard]) -> list[str]:
    one = _viewpoint(servers)
    if one is None:
        return ["", *(f"LEADER   {term.sentence}" for term in terms.values())] if terms else []
    return ["", f"STORE    {_store(one)}", f"LEADER   {_leader(one)}{_unconfirmed(one)}"]


def _unconfirmed(one: ElectorView) -> str:
    """Return the age of what a server knows about leadership, once renewals or reads are missing."""
    if one.confirmed_s is None or one.confirmed_s < one.ttl_s * _STALE_SHARE:
        return ""
    if one.leader == one.name or (not one.leader and one.last_term):
        return f"   {stale_term(one.last_term, one.confirmed_s)}"
    return f"   as of {short(one.confirmed_s)} ago"


def _store(one: ElectorView) -> str:
    store = one.store
    if store is None:
        return f"unreachable: {one.store_error}"
    compacted = "" if store.compacted_ago_s is None else f"   compacted {short(store.compacted_ago_s)} ago"
    return (
        f"etcd {store.version}   {store.answering} of {store.members} members   rev {store.revision:,}   "
        f"round trip {store.round_trip_ms:.0f} ms{compacted}"
    )


def _leader(one: ElectorView) -> str:
    if not one.leader:
        return f"none   seen from {one.name} ({one.phase})"
    followers = ", ".join(f"{name} {'ready' if able else 'not ready'}" for name, able in sorted(one.followers.items()))
    tail = f"   followers: {followers}" if followers else "   no followers"
    if one.phase != "leading":
        return f"{one.leader}   seen from {one.name} ({one.phase}){tail}"
    return f"{one.leader}   term {one.term}   {short(one.since_s)}   lease {one.lease_s:.1f} of {one.ttl_s:g} s{tail}"


def agent_lines(agents: Sequence[AgentDetails]) -> list[str]:
    """Return one line that sums up all agents here."""
    if not agents:
        return []
    total = sum((Counter(agent.counts) for agent in agents), Counter[str]())
    name = agents[0].host if len(agents) == 1 else f"{len(agents):,} here"
    peers = f"   {total['peers']:,} peers" if len(agents) == 1 else ""
    pending = sum(agent.pending_deletes for agent in agents)
    states = "   ".join(f"{state} {total[state]:,}" for state in ("programmed", "held", "failed"))
    return ["", f"AGENT    {name}{peers}   {states}   pending deletes {pending:,}"]


def _problem(problem: Problem, number: int, width: int | None) -> list[str]:
    mark = str(number) if problem.needs_action else "·"
    first = f" {mark} {problem.subject:<16} "
    sentence = [first + problem.sentence]
    if width is not None:
        sentence = textwrap.wrap(
            problem.sentence,
            max(width, 60),
            initial_indent=first,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    steps = {"To inspect": problem.inspect, "To release": problem.release, "To fix": problem.fix}
    return sentence + [f"{_INDENT}{step}: {command}" for step, command in steps.items() if command]


def _workers(one: DaemonReport) -> list[str]:
    title = f"WORKER ({one.role})"
    states = [textwrap.shorten(worker.state, _STATE, placeholder=" …") for worker in one.workers]
    wide = max([18, *map(len, states)])
    lines = [f"{title:<18}{'PULSE':>8}  {'STATE':<{wide}}  {'BACKLOG':>9}{'LAG':>8}  RESTARTS 24h"]
    for worker, state in zip(one.workers, states, strict=True):
        pulse = "–" if worker.pulse_s is None else short(worker.pulse_s)
        lag = "–" if worker.lag_s is None else short(worker.lag_s)
        row = f"{worker.name:<18}{pulse:>8}  {state:<{wide}}  {count(worker.backlog):>9}{lag:>8}"
        lines.append(f"{row}  {worker.restarts}{_last_trouble(worker)}")
    return lines


def _last_trouble(worker: WorkerReport) -> str:
    if not worker.trouble or worker.trouble_ago_s is None:
        return ""
    back = f", back in {short(worker.back_after_s)}" if worker.back_after_s is not None else ""
    return f"  {worker.trouble} {short(worker.trouble_ago_s)} ago{back}"
