"""`holdfast resync` and `diff inventory`: compare the inventory with the store now, on the server that leads."""

from __future__ import annotations

import difflib
import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import leading, runtime_flag, tell

_LOOK_S = 0.2
_KEPT = 60
"""Lines of one object's difference that are shown."""


def compared(runtime: Path, worker: str, **args: Any) -> dict[str, Any]:
    """Asks for a comparison and waits for its end, with its progress on a terminal."""
    told: dict[str, Any] = tell(runtime, worker, "resync", **args)
    while not told["done"]:
        time.sleep(_LOOK_S)
        told = tell(runtime, worker, "resync", progress=True)
        if sys.stderr.isatty():
            click.echo(f"\r{told['looked']:,} compared", nl=told["done"], err=True)
    if told["error"]:
        raise click.ClickException(told["error"])
    return told


@click.command()
@click.option("--dry-run", is_flag=True, help="Only tell what differs.")
@click.option("--kind", help="Only objects of this kind, such as endpoints.")
@click.option("--name", help="Only the object of this name; needs --kind.")
@click.option("--worker", help="The syncer, in a lab DAEMON/syncer. Default: the one here that leads.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@runtime_flag
def resync(dry_run: bool, kind: str | None, name: str | None, worker: str | None, output: str, runtime: Path) -> None:
    """Compare the inventory with the store now, and mend the store. Run it on the server that leads."""
    told = compared(runtime, worker or leading(runtime, "syncer"), dry_run=dry_run, kind=kind, name=name)
    if output == "json":
        click.echo(json.dumps(told, indent=2))
        return
    for one in told["objects"]:
        click.echo(f"{one['op']:<8} {one['key']}")
    _more(told)
    held = f", {told['held']:,} held (holdfast plan syncer tells why)" if told["held"] else ""
    click.echo(f"{told['differed']:,} differed{held}; took {told['seconds']:g} s", err=True)


def differences(runtime: Path, worker: str | None, output: str, **scope: str | None) -> None:
    """What is not in the store as the inventory wants it, line by line. Exit code 1 when there is something."""
    told = compared(runtime, worker or leading(runtime, "syncer"), dry_run=True, values=True, **scope)
    if output == "json":
        click.echo(json.dumps(told, indent=2))
    else:
        for one in told["objects"]:
            click.echo(f"{one['op']:<8} {one['key']}")
            for line in _lines(one) if one["op"] == "replace" else ():
                click.echo(f"  {line}")
        _more(told)
        for line in _summary(told):
            click.echo(line, err=True)
    if told["differed"]:
        raise click.exceptions.Exit(1)


def _lines(one: dict[str, Any]) -> list[str]:
    lines = list(difflib.unified_diff(_pretty(one["old"]), _pretty(one["new"]), lineterm="", n=0))
    return [line for line in lines[2:] if not line.startswith("@@")][:_KEPT]


def _pretty(text: str) -> list[str]:
    try:
        return json.dumps(json.loads(text), indent=2, sort_keys=True).splitlines()
    except ValueError:
        return [text]


def _more(told: dict[str, Any]) -> None:
    if told["differed"] > len(told["objects"]):
        click.echo(f"… and {told['differed'] - len(told['objects']):,} more")


def _summary(told: dict[str, Any]) -> list[str]:
    """34,812 differ: 0 to create, 0 to replace, 34,812 to delete — and from which networks."""
    counts = ", ".join(f"{told[op]:,} to {op}" for op in ("create", "replace", "delete"))
    lines = [f"{told['differed']:,} differ: {counts}" if told["differed"] else "the store has what the inventory wants"]
    for name, of in told["networks"].items():
        where = f"network {name}" if name else "no network"
        lines.append(f"{where}: {of['delete']:,} of {of['of']:,} endpoints would go ({of['delete'] / of['of']:.0%})")
    return lines
