"""`holdfast history`: the decision log, as people read it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec

from holdfast.cli.common.control_socket import answer, nobody, roles, runtime_flag
from holdfast.cli.explain.inventory import about, changes
from holdfast.runtime.control import Request
from holdfast.runtime.decision_log import Decision


@click.command()
@click.argument("key", required=False)
@click.argument("name", required=False)
@click.option("-n", "--last", default=50, show_default=True, type=click.IntRange(min=0), help="How many; 0: all.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@runtime_flag
def history(key: str | None, name: str | None, last: int, output: str, runtime: Path) -> None:
    """What was decided, when, by which worker and why.

    With KEY about one object only; with a kind and a NAME of the inventory also who changed it there, and why.
    """
    if not roles(runtime):
        raise nobody(runtime)
    told = about(runtime, key, name) if key is not None and name is not None else None
    keys = [key] if told is None else [held["key"] for held in told["store"]]
    found = [one for each in keys for one in _decided(runtime, each, last)]
    found.sort(key=lambda decision: decision.time)
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    lines = [(decision.time.isoformat(), line(decision)) for decision in found]
    lines = sorted([*lines, *(changes(told) if told else ())])[-last:]
    for _, text in lines:
        click.echo(text)
    if not lines:
        click.echo("nothing was decided" + (f" about {key}" if key else "") + " yet", err=True)


def _decided(runtime: Path, key: str | None, last: int) -> list[Decision]:
    found: list[Decision] = []
    for role in roles(runtime):
        found += msgspec.convert(answer(runtime, role, Request("history", {"key": key, "last": last})), list[Decision])
    return found


def line(decision: Decision) -> str:
    what = f"{decision.op} {decision.key}" + (f" ×{decision.count:,}" if decision.count > 1 else "")
    gate = f" [{decision.gate}]" if decision.gate else ""
    time = f"{decision.time:%m-%d %H:%M:%S}.{decision.time.microsecond // 1000:03d}Z"
    return f"{time}  {decision.worker:<12} {what}: {decision.outcome}{gate}, {decision.sentence}"
