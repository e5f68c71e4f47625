"""`holdfast explain worker | gate | intent`: what the daemons of this machine say about themselves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.common.control_socket import LEADER_ONLY, CannotTell, answer, label, roles
from holdfast.cli.common.format import clock, counted, release_rows, row, short
from holdfast.cli.explain.host import DECISIONS, SEARCHED, decision_rows
from holdfast.cli.status.intents import all_intents
from holdfast.cli.status.problems import problems
from holdfast.cli.status.table import present
from holdfast.cli.status.view import StatusView, read_status
from holdfast.model.base.time import rfc3339
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.runtime.control import Request

_OBJECTS = 20
_ENDED_BY = {IntentKind.PAUSE: "resume", IntentKind.DRAIN: "undrain", IntentKind.DISABLE: "enable"}


def query_worker(runtime: Path, name: str) -> dict[str, Any]:
    """Return what is known of a worker: DAEMON/WORKER, or the name alone where one daemon has it."""
    view = asyncio.run(read_status(runtime))
    daemon, worker = _chosen(view, name)
    report = next(one for one in view.reports if one.role == daemon)
    found = present(next(one for one in report.workers if one.name == worker), daemon, view)
    about = [one for one in problems(view) if one.subject in (worker, f"{daemon}/{worker}")]
    return {
        "name": f"{daemon}/{worker}",
        "worker": msgspec.to_builtins(found),
        "held": view.held.get(f"{daemon}/{worker}", []),
        "problems": msgspec.to_builtins(about),
        "decisions": _decisions(runtime, daemon, lambda one: worker in (one["worker"], _subject(one))),
    }


def _subject(decision: Mapping[str, Any]) -> str:
    """Return the worker that a record of the supervisor is about."""
    return str(decision["key"]).removeprefix("worker/")


def _chosen(view: StatusView, name: str) -> tuple[str, str]:
    known = [(one.role, worker.name) for one in view.reports for worker in one.workers]
    daemon, _, worker = name.rpartition("/")
    found = [one for one in known if one[1] == worker and daemon in ("", one[0])]
    leader = next((one.name for one in view.servers if one.phase == "leading"), None)
    if leader is not None and worker in LEADER_ONLY and (leader, worker) in found and not daemon:
        return leader, worker
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{role}/{one}" for role, one in found or known)
    if found:
        raise click.ClickException(f"{name} is ambiguous here: name one of {names}")
    raise click.ClickException(f"no worker {name!r} runs on this machine: name one of {names}")


def _decisions(runtime: Path, daemon: str, is_meant: Callable[[Mapping[str, Any]], bool]) -> list[dict[str, Any]]:
    """Return the last decisions that are meant, of that daemon's log; empty if it does not answer."""
    role = next(one for one in roles(runtime) if label(one) == daemon)
    try:
        found = answer(runtime, role, Request("history", {"key": None, "last": SEARCHED}))
    except CannotTell:
        return []
    return [one for one in found if is_meant(one)][-DECISIONS:]


def worker(one: dict[str, Any]) -> Iterator[str]:
    found = one["worker"]
    yield f"{one['name']} is {found['state']}" + ("" if found["pid"] is None else f" (pid {found['pid']})")
    yield ""
    pulse = "none" if found["pulse_s"] is None else f"{short(found['pulse_s'])} ago"
    yield row("PULSE", f"{pulse}; judged {found['verdict']}, {found['phase']}")
    if found["backlog"] is not None:
        lag = "" if found["lag_s"] is None else f", the oldest for {short(found['lag_s'])}"
        yield row("BACKLOG", counted(found["backlog"], "object") + (lag if found["backlog"] else ""))
    if found["waiting_s"] is not None:
        yield row("WAITING", f"for {clock(found['waiting_s'])}; programmed state stays")
    yield row("RESTARTS", f"{found['restarts']} in 24 h" + (", crash-looping" if found["crash_looping"] else ""))
    if found["trouble"] and found["trouble_ago_s"] is not None:
        back = "" if found["back_after_s"] is None else f"; back after {short(found['back_after_s'])}"
        yield row("LAST", f"{found['trouble']} {short(found['trouble_ago_s'])} ago ({found['evidence']}){back}")
    for problem in one["problems"]:
        yield row("PROBLEM", problem["sentence"])
        steps = {"To inspect": problem["inspect"], "To release": problem["release"], "To fix": problem["fix"]}
        yield from (row("", f"{step}: {command}") for step, command in steps.items() if command)
    yield from _held_rows(one["held"])
    yield from decision_rows(one["decisions"])


def query_gate(runtime: Path, name: str) -> dict[str, Any]:
    """Return what a gate, such as syncer/brake, holds, and the last decisions in which it took part."""
    of, slash, gate = name.rpartition("/")
    if not slash:
        raise click.UsageError(f"name a gate as WORKER/GATE, such as syncer/brake: {name!r} has no worker.")
    view = asyncio.run(read_status(runtime))
    known = [f"{one.role}/{worker.name}" for one in view.reports for worker in one.workers]
    meant = [one for one in known if of == one or one.endswith(f"/{of}")]
    if not meant:
        raise click.ClickException(f"no worker {of!r} runs on this machine: name one of {', '.join(known)}")
    held = [one for worker in meant for one in view.held.get(worker, []) if one["gate"] == gate]
    allowed = [one for one in view.intents if one.what is IntentKind.ALLOW and one.scope.name == of.rpartition("/")[2]]
    daemons = {one.rpartition("/")[0] for one in meant}
    decisions = [
        one for daemon in sorted(daemons) for one in _decisions(runtime, daemon, lambda one: _is_of(one, gate))
    ]
    return {
        "name": name,
        "held": held,
        "allowed": msgspec.to_builtins(allowed),
        "decisions": sorted(decisions, key=lambda one: str(one["time"]))[-DECISIONS:],
    }


def _is_of(decision: Mapping[str, Any], gate: str) -> bool:
    return decision.get("gate") == gate


def gate(one: dict[str, Any]) -> Iterator[str]:
    held = one["held"]
    yield f"{one['name']} holds {counted(len(held), 'change')}." if held else f"{one['name']} holds nothing."
    yield ""
    for reason, number in Counter(change["reason"] for change in held).items():
        yield row("REASON", f"{reason} ({counted(number, 'change')})")
    for allow in one["allowed"]:
        intent = msgspec.convert(allow, Intent)
        yield row("ALLOWED", intent.sentence)
        yield row("", f"To take it back: holdfast gate revoke {one['name']}")
    yield from _held_rows(held)
    yield from decision_rows(one["decisions"])


def _held_rows(held: list[dict[str, Any]]) -> Iterator[str]:
    for change in held[:_OBJECTS]:
        yield row("HELD", f"{change['op']} {change['key']} for {clock(change['since_s'])}, {change['why']}")
    if len(held) > _OBJECTS:
        yield row("", f"… and {len(held) - _OBJECTS:,} more (-o json shows all)")
    yield from release_rows(held)


def query_intent(runtime: Path, name: str) -> dict[str, Any]:
    """Return one intent by the name that `holdfast get intents` shows, such as "pause worker syncer"."""
    found = all_intents(runtime)
    wanted = next((one for one in found if intent_name(one) == " ".join(name.split())), None)
    if wanted is None:
        names = ", ".join(f"“{intent_name(one)}”" for one in found) or "none"
        raise click.ClickException(f"no operator asked for “{name}” here; in force: {names}")
    view = asyncio.run(read_status(runtime))
    resume = f"holdfast resume {wanted.scope}"
    waiting = sum(one["opens"].partition(",")[0] == resume for held in view.held.values() for one in held)
    return {"name": intent_name(wanted), "intent": msgspec.to_builtins(wanted), "waiting": waiting}


def intent_name(intent: Intent) -> str:
    return f"{intent.what.value} {intent.scope}"


def intent(one: dict[str, Any]) -> Iterator[str]:
    found = msgspec.convert(one["intent"], Intent)
    until = "it has no end" if found.until is None else f"until {rfc3339(found.until)}"
    yield f"{one['name']} is in force since {rfc3339(found.since)}, {until}."
    yield ""
    yield row("WHO", found.who)
    yield row("WHY", found.why)
    if found.weight is not None:
        yield row("WEIGHT", str(found.weight))
    if found.what is IntentKind.PAUSE:
        yield row("HOLDS", counted(one["waiting"], "change"))
    if found.what in _ENDED_BY:
        yield row("", f"To end it: holdfast {_ENDED_BY[found.what]} {found.scope}")
