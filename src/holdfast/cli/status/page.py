"""`holdfast status`: problems first, each with its next command; then store, leader, workers and the fleet.

Exit codes: 0 everything that should run is known to be healthy, 1 something needs action, 3 unknown: a daemon does not
answer, is starting, or waits for something.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from holdfast.agent.report.summary import AgentDetails
from holdfast.cli.common.control_socket import CANNOT_TELL, runtime_flag
from holdfast.cli.common.format import (
    DOCUMENTS,
    Paint,
    counted,
    output_flag,
    paint,
    parts,
    plain,
    print_document,
    short,
    watch_flags,
    wrapped,
)
from holdfast.cli.common.terms import TermOnBoard, stale_term
from holdfast.cli.status import observed, vips
from holdfast.cli.status.problems import problems
from holdfast.cli.status.table import daemon_lines
from holdfast.cli.status.view import Problem, StatusView, read_status
from holdfast.model.control.intent import IntentKind
from holdfast.server.election.views import ElectorView

NEEDS_ACTION = 1
_FLEET_ID = 12
"""Characters of a fleet id that are shown."""
_INDENT = " " * 20
_DAEMONS_NAMED = 3
_STALE_SHARE = 0.5
"""Share of the TTL without an answer of the store after which the age of the leadership is shown."""


@click.command()
@output_flag
@watch_flags
@click.option("--wait", is_flag=True, help="Wait until everything is healthy, for at most a minute.")
@runtime_flag
def status(output: str, watch: bool, interval: float, wait: bool, runtime: Path) -> None:
    """Show problems and how to solve them, the leader, and every worker on this machine.

    Exits with 0 only if everything that should run is known to be healthy; with 1 if something needs action, with 3
    if that cannot be told yet: a daemon does not answer, is starting, or waits for the store.
    """
    if watch:
        _watch(runtime, output, interval)
    deadline = time.monotonic() + 60
    while True:
        view = asyncio.run(read_status(runtime))
        if not wait or is_healthy(view) or time.monotonic() >= deadline:
            _print(view, output, clear=False)
            raise click.exceptions.Exit(exit_code(view))
        time.sleep(1)


def _watch(runtime: Path, output: str, interval: float) -> NoReturn:
    """Refresh until Ctrl-C, also over the restart of all daemons: that is what one watches for."""
    while True:
        try:
            _print(asyncio.run(read_status(runtime)), output, clear=True)
        except click.ClickException as error:
            click.clear()
            error.show()
        time.sleep(interval)


def _print(view: StatusView, output: str, *, clear: bool) -> None:
    if clear:
        click.clear()
    if output in DOCUMENTS:
        print_document(document(view), output)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo(render(view, datetime.now(UTC), width, paint), nl=False)


def document(view: StatusView) -> dict[str, Any]:
    """Return what `-o json` and `-o yaml` print."""
    shown = {
        "exit_code": exit_code(view),
        "problems": [_document(problem) for problem in problems(view)],
        "daemons": view.reports,
        "held": view.held,
        "servers": view.servers,
        "agents": view.agents,
        "balancers": view.balancers,
        "verdict": view.verdict,
        "seen": view.seen,
        "vips": view.vips,
        "intents": view.intents,
        "terms": view.terms,
        "unreached": view.unreached,
        "deletes": view.deletes,
    }
    found: dict[str, Any] = msgspec.to_builtins(shown)
    return found


def _document(problem: Problem) -> dict[str, object]:
    """Return a problem as `-o json` prints it, with the commands to run."""
    return {
        "subject": problem.subject,
        "sentence": problem.sentence,
        "needs_action": problem.needs_action,
        "known": problem.known,
        "commands": {"inspect": problem.inspect, "release": problem.release, "fix": problem.fix},
    }


def exit_code(view: StatusView) -> int:
    found = problems(view)
    if view.silent:
        return CANNOT_TELL
    if any(problem.needs_action for problem in found):
        return NEEDS_ACTION
    return 0 if all(problem.known for problem in found) else CANNOT_TELL


def is_healthy(view: StatusView) -> bool:
    """Return True if there is nothing to wait for."""
    return exit_code(view) == 0


def render(view: StatusView, now: datetime, width: int | None = None, paint: Paint = plain) -> str:
    """Render the page; sentences wrap at `width`. Pure, so that a golden test can check all of it."""
    found = problems(view)
    needed = sum(problem.needs_action for problem in found)
    lines = parts(
        f"holdfast {view.reports[0].version}   ", _title(view), f"{now:%H:%M:%S}Z", _seen_from(view), width=width
    )
    title = paint(f"NEEDS YOU  {needed}", "red" if needed else "green" if not exit_code(view) else "yellow")
    lines += ["", f"{title}        handled by itself  {len(found) - needed}"]
    for number, problem in enumerate(found, 1):
        lines += _problem(problem, number, width, paint)
    lines += _paused(view, width)
    lines += _leadership(view.servers, view.terms, width)
    lines += agent_lines(view.agents, width)
    lines += daemon_lines(view, paint)
    lines += observed.lines(view.seen, width)
    lines += vips.lines(view.vips, width)[1 if view.seen else 0 :]
    lines += _deletes(view.deletes, width)
    return "\n".join(lines) + "\n"


def _title(view: StatusView) -> str:
    """Return the fleet id if a server here knows it, else the daemons."""
    fleet = next((server.fleet for server in view.servers if server.fleet), "")
    return f"fleet {fleet[:_FLEET_ID]}" if fleet else ", ".join(one.role for one in view.reports)


def _seen_from(view: StatusView) -> str:
    one = _viewpoint(view.servers)
    return f"seen from {one.name} ({'leader' if one.phase == 'leading' else one.phase})" if one else ""


def _viewpoint(servers: Sequence[ElectorView]) -> ElectorView | None:
    """Return the server whose view the page shows: the leader, else the first."""
    return next((server for server in servers if server.phase == "leading"), servers[0] if servers else None)


def _paused(view: StatusView, width: int | None) -> list[str]:
    """Return the block of pauses: what, until when, by whom, and why."""
    found = [one for one in view.intents if one.what is IntentKind.PAUSE]
    if not found:
        return []
    wide = max(len(str(one.scope)) for one in found)
    lines = [""]
    for number, one in enumerate(found):
        first = f"{'' if number else 'PAUSED':<9}{one.scope!s:<{wide}}   "
        lines += wrapped(first, f"{one.lasting.strip() or 'no end'}   by {one.who}: “{one.why}”", width)
    return lines


def _deletes(found: Mapping[str, Mapping[str, int]], width: int | None) -> list[str]:
    """Return the line of deletes: what the daemons here have deleted in the last hour (C64)."""
    if not found:
        return []
    total = sum((Counter(kinds) for kinds in found.values()), Counter[str]())
    kinds = [f"{kind} {count:,}" for kind, count in total.most_common()]
    where = ", ".join(list(found)[:_DAEMONS_NAMED]) + (", …" if len(found) > _DAEMONS_NAMED else "")
    return ["", *parts("DELETED  ", "in the last hour", *kinds, f"by {where}", "look: holdfast history", width=width)]


def _leadership(servers: Sequence[ElectorView], terms: Mapping[str, TermOnBoard], width: int | None) -> list[str]:
    one = _viewpoint(servers)
    if one is None:
        return ["", *(f"LEADER   {term.sentence}" for term in terms.values())] if terms else []
    store = parts("STORE    ", *_store(one), width=width)
    return ["", *store, *parts("LEADER   ", *_leader(one), _unconfirmed(one), width=width)]


def _unconfirmed(one: ElectorView) -> str:
    """Return the age of what a server knows about leadership, once renewals or reads are missing."""
    if one.confirmed_s is None or one.confirmed_s < one.ttl_s * _STALE_SHARE:
        return ""
    if one.leader == one.name or (not one.leader and one.last_term):
        return stale_term(one.last_term, one.confirmed_s)
    return f"as of {short(one.confirmed_s)} ago"


def _store(one: ElectorView) -> Iterator[str]:
    store = one.store
    if store is None:
        yield one.store_error
        return
    yield f"etcd {store.version}"
    yield f"{store.answering} of {counted(store.members, 'member')}"
    yield f"rev {store.revision:,}"
    yield f"round trip {store.round_trip_ms:.0f} ms"
    if store.compacted_ago_s is not None:
        yield f"compacted {short(store.compacted_ago_s)} ago"


def _leader(one: ElectorView) -> Iterator[str]:
    if not one.leader:
        yield "none"
        yield f"seen from {one.name} ({one.phase})"
        return
    yield one.leader
    if one.phase == "leading":
        yield f"term {one.term}"
        yield short(one.since_s)
        yield f"lease {one.lease_s:.1f} of {one.ttl_s:g} s"
    else:
        yield f"seen from {one.name} ({one.phase})"
    followers = ", ".join(f"{name} {'ready' if able else 'not ready'}" for name, able in sorted(one.followers.items()))
    yield f"followers: {followers}" if followers else "no followers"


def agent_lines(agents: Sequence[AgentDetails], width: int | None = None) -> list[str]:
    """Return one line that sums up all agents here."""
    if not agents:
        return []
    total = sum((Counter(agent.counts) for agent in agents), Counter[str]())
    is_one = len(agents) == 1
    name = agents[0].host if is_one else f"{len(agents):,} here"
    states = [f"{state} {total[state]:,}" for state in ("programmed", "held", "failed")]
    pending = f"pending deletes {sum(agent.pending_deletes for agent in agents):,}"
    peers = counted(total["peers"], "peer") if is_one else ""
    peers = "routing bgp" if is_one and agents[0].routing == "bgp" else peers
    return ["", *parts("AGENT    ", name, peers, *states, pending, width=width)]


def _problem(problem: Problem, number: int, width: int | None, paint: Paint) -> list[str]:
    mark = str(number) if problem.needs_action else "·"
    first = f" {mark} {problem.subject:<16} "
    coloured = f" {paint(f'{mark} {problem.subject:<16}', 'red' if problem.needs_action else 'yellow')} "
    sentence = wrapped(first, problem.sentence, width, _INDENT)
    sentence[0] = coloured + sentence[0].removeprefix(first)
    steps = {"To inspect": problem.inspect, "To release": problem.release, "To fix": problem.fix}
    return sentence + [f"{_INDENT}{step}: {command}" for step, command in steps.items() if command]
