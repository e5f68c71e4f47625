"""`holdfast history`: the decision log, as people read it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec

from holdfast.cli.daemon import answer, nobody, roles, runtime_flag
from holdfast.runtime.control import Request
from holdfast.runtime.decisions import Decision


@click.command()
@click.argument("key", required=False)
@click.option("-n", "--last", default=50, show_default=True, type=click.IntRange(min=0), help="How many; 0: all.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@runtime_flag
def history(key: str | None, last: int, output: str, runtime: Path) -> None:
    """What was decided, when, by which worker and why; with KEY, about one object only."""
    names = roles(runtime)
    if not names:
        raise nobody(runtime)
    found: list[Decision] = []
    for role in names:
        found += msgspec.convert(answer(runtime, role, Request("history", {"key": key, "last": last})), list[Decision])
    found.sort(key=lambda decision: decision.time)
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    for decision in found:
        click.echo(line(decision))
    if not found:
        click.echo("nothing was decided" + (f" about {key}" if key else "") + " yet", err=True)


def line(decision: Decision) -> str:
    what = f"{decision.op} {decision.key}" + (f" ×{decision.count:,}" if decision.count > 1 else "")
    gate = f" [{decision.gate}]" if decision.gate else ""
    time = f"{decision.time:%m-%d %H:%M:%S}.{decision.time.microsecond // 1000:03d}Z"
    return f"{time}  {decision.worker:<12} {what}: {decision.outcome}{gate}, {decision.sentence}"
