"""`holdfast history`: the decision logs of all daemons here and, on a server, of all other servers; oldest first."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.common.control_socket import (
    CannotTell,
    answer,
    electors,
    label,
    no_daemon,
    roles,
    runtime_flag,
)
from holdfast.cli.common.format import (
    DOCUMENTS,
    fitted,
    output_flag,
    print_document,
    terminal_width,
    watch_flags,
    watchable,
)
from holdfast.cli.explain.inventory import change_lines, query
from holdfast.model.control.decision import Decision
from holdfast.runtime.control import Request
from holdfast.runtime.daemon.other_histories import ServerHistory

_OTHERS_WITHIN = 12.0
_INDENT = len("11-19 21:10:27.123Z  ")


@click.command()
@click.argument("key", required=False)
@click.argument("name", required=False)
@click.option(
    "-n", "--last", default=50, show_default=True, type=click.IntRange(min=0), help="Number of lines; 0: all."
)
@output_flag
@runtime_flag
@watchable
def history(key: str | None, name: str | None, last: int, output: str, runtime: Path) -> None:
    """Show decisions: what was changed or held, when, by which worker, and why.

    With KEY only those about one object; with a kind of the inventory and a NAME also the edits of that object. On a
    server it asks the other servers for theirs, too: a leader's workers decide, and leaders change.
    """
    if not roles(runtime):
        raise no_daemon(runtime)
    inventory = query(runtime, key, name) if key is not None and name is not None else None
    keys = [key] if inventory is None else [one["key"] for one in inventory["store"]]
    notes: dict[str, None] = {}
    found = decisions(runtime, keys, last, notes)
    if output in DOCUMENTS:
        print_document([one.document for one in found[-last:]], output)
    else:
        lines = [(one.decision.time.isoformat(), line(one.decision, one.server)) for one in found]
        lines = sorted([*lines, *(change_lines(inventory) if inventory else ())])[-last:]
        for _, text in lines:
            _echo(text)
        if not lines:
            click.echo("no decisions" + (f" about {key}" if key else "") + " are recorded", err=True)
    for note in notes:
        click.echo(note, err=True)


@click.command()
@click.option("-n", "--last", default=20, show_default=True, type=click.IntRange(1, 10_000), help="Number of lines.")
@click.option("--worker", help="Only decisions of workers of this name.")
@output_flag
@watch_flags
@runtime_flag
def events(last: int, worker: str | None, output: str, watch: bool, interval: float, runtime: Path) -> None:
    """Show the newest decisions of the daemons here; with -w also those that follow, until Ctrl-C.

    With -w, -o json prints one decision per line. `holdfast history` has those of other servers, too, and finds the
    decisions about one object.
    """
    if not roles(runtime):
        raise no_daemon(runtime)
    shown: set[Decision] = set()
    while True:
        found = sorted(_here(runtime, None, last, {}), key=lambda one: one.decision.time)
        fresh = [one.decision for one in found if worker in (None, one.decision.worker)]
        _print_events([one for one in fresh[-last:] if one not in shown], output, as_they_come=watch)
        shown = set(fresh)
        if not watch:
            return
        time.sleep(interval)


def _print_events(found: Sequence[Decision], output: str, *, as_they_come: bool) -> None:
    documents = [Recorded(one).document for one in found]
    if output == "json" and as_they_come:
        for document in documents:
            click.echo(json.dumps(document))
    elif output in DOCUMENTS:
        print_document(documents, output)
    else:
        for one in found:
            _echo(line(one))


def _echo(text: str) -> None:
    for part in fitted(text, terminal_width(), _INDENT):
        click.echo(part)


@dataclass(frozen=True)
class Recorded:
    """A decision, and the server that recorded it if that does not run on this machine."""

    decision: Decision
    server: str = ""

    @property
    def document(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self.decision)
        return {**fields, "server": self.server} if self.server else fields


def decisions(runtime: Path, keys: Sequence[str | None], last: int, notes: dict[str, None]) -> list[Recorded]:
    """Return the last decisions about each key, or about all (None), oldest first; `notes` gets what is missing."""
    found = [
        one for each in keys for one in [*_here(runtime, each, last, notes), *_elsewhere(runtime, each, last, notes)]
    ]
    return sorted(found, key=lambda one: one.decision.time)


def _here(runtime: Path, key: str | None, last: int, notes: dict[str, None]) -> list[Recorded]:
    """Return the decisions of the daemons here. One that does not answer costs only its own."""
    found: list[Recorded] = []
    silent: dict[str, str] = {}
    for role in roles(runtime):
        try:
            answered = answer(runtime, role, Request("history", {"key": key, "last": last}))
        except click.ClickException as error:
            silent[role] = error.message
            continue
        found += map(Recorded, msgspec.convert(answered, list[Decision]))
    if len(silent) == len(roles(runtime)):
        raise CannotTell("; ".join(silent.values()))
    notes.update(dict.fromkeys(f"without the decisions of {label(role)}: {why}" for role, why in silent.items()))
    return found


def _elsewhere(runtime: Path, key: str | None, last: int, notes: dict[str, None]) -> list[Recorded]:
    """Return the decisions of the servers on other machines: the leader's workers decide, and leaders change."""
    asking = next((role for role in roles(runtime) if role.rpartition("/")[2] == "server"), None)
    if asking is None:
        return []
    try:
        known = [about["name"] for about in electors(runtime).values()]
        request = Request("other-histories", {"known": known, "key": key, "last": last})
        answered = answer(runtime, asking, request, within=_OTHERS_WITHIN)
    except click.ClickException as error:
        notes[f"without the decisions of other servers: {error.message}"] = None
        return []
    found: list[Recorded] = []
    for one in msgspec.convert(answered, list[ServerHistory]):
        if one.decisions is None:
            notes[f"without the decisions of {one.server}, which does not answer: run holdfast history there"] = None
        elif one.omitted and not last:
            notes[f"without {one.omitted:,} older decisions of {one.server}: run holdfast history there"] = None
        found += [Recorded(decision, one.server) for decision in one.decisions or ()]
    return found


def line(decision: Decision, server: str = "") -> str:
    what = f"{decision.op} {decision.key}" + (f" ×{decision.count:,}" if decision.count > 1 else "")
    gate = f" [{decision.gate}]" if decision.gate else ""
    time = f"{decision.time:%m-%d %H:%M:%S}.{decision.time.microsecond // 1000:03d}Z"
    worker = f"{server}/{decision.worker}" if server else decision.worker
    return f"{time}  {worker:<16} {what}: {decision.outcome}{gate}, {decision.sentence}"
