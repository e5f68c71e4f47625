"""`holdfast history`: the decision log of all daemons here, oldest first, and where the leader records its own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from holdfast.cli.common.control_socket import answer, no_daemon, roles, runtime_flag, send_command, workers_named
from holdfast.cli.common.format import output_flag
from holdfast.cli.explain.inventory import change_lines, query
from holdfast.runtime.control import Request
from holdfast.runtime.decision_log import Decision
from holdfast.server.election.views import ElectorView


@click.command()
@click.argument("key", required=False)
@click.argument("name", required=False)
@click.option(
    "-n", "--last", default=50, show_default=True, type=click.IntRange(min=0), help="Number of lines; 0: all."
)
@output_flag
@runtime_flag
def history(key: str | None, name: str | None, last: int, output: str, runtime: Path) -> None:
    """Show decisions: what was changed or held, when, by which worker, and why.

    With KEY only those about one object; with a kind of the inventory and a NAME also the edits of that object.
    """
    if not roles(runtime):
        raise no_daemon(runtime)
    inventory = query(runtime, key, name) if key is not None and name is not None else None
    keys = [key] if inventory is None else [one["key"] for one in inventory["store"]]
    found = [one for each in keys for one in _decisions(runtime, each, last)]
    found.sort(key=lambda decision: decision.time)
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    lines = [(decision.time.isoformat(), line(decision)) for decision in found]
    lines = sorted([*lines, *(change_lines(inventory) if inventory else ())])[-last:]
    for _, text in lines:
        click.echo(text)
    if not lines:
        click.echo("no decisions" + (f" about {key}" if key else "") + " are recorded here", err=True)
    note = leads_elsewhere(_elections(runtime))
    if note:
        click.echo(note, err=True)


def _elections(runtime: Path) -> list[ElectorView]:
    """Return the views of the servers here; none of a server that does not answer."""
    found: list[ElectorView] = []
    for elector in workers_named(runtime, "elector"):
        with contextlib.suppress(click.ClickException):
            found.append(msgspec.convert(send_command(runtime, elector, "about"), ElectorView))
    return found


def leads_elsewhere(servers: Sequence[ElectorView]) -> str | None:
    """Return where the leader's decisions are recorded, if it is not here: each server keeps its own decision log, and
    only the leader's syncer and status workers decide anything."""
    leaders = {server.leader for server in servers} - {"", *(server.name for server in servers)}
    if not leaders:
        return None
    names = ", ".join(sorted(leaders))
    return f"server {names} leads, and its syncer and status workers record their decisions: run holdfast history there"


def _decisions(runtime: Path, key: str | None, last: int) -> list[Decision]:
    found: list[Decision] = []
    for role in roles(runtime):
        found += msgspec.convert(answer(runtime, role, Request("history", {"key": key, "last": last})), list[Decision])
    return found


def line(decision: Decision) -> str:
    what = f"{decision.op} {decision.key}" + (f" ×{decision.count:,}" if decision.count > 1 else "")
    gate = f" [{decision.gate}]" if decision.gate else ""
    time = f"{decision.time:%m-%d %H:%M:%S}.{decision.time.microsecond // 1000:03d}Z"
    return f"{time}  {decision.worker:<16} {what}: {decision.outcome}{gate}, {decision.sentence}"
