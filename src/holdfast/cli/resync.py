"""`holdfast resync`: compare the inventory with the store now, on the server that leads."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from holdfast.cli.daemon import runtime_flag, tell

_LOOK_S = 0.2


@click.command()
@click.option("--dry-run", is_flag=True, help="Only tell what differs.")
@click.option("--kind", help="Only objects of this kind, such as endpoints.")
@click.option("--name", help="Only the object of this name; needs --kind.")
@click.option("--worker", default="syncer", show_default=True, help="The syncer; in a lab DAEMON/syncer.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@runtime_flag
def resync(dry_run: bool, kind: str | None, name: str | None, worker: str, output: str, runtime: Path) -> None:
    """Compare the inventory with the store now, and mend the store. Run it on the server that leads."""
    told = tell(runtime, worker, "resync", dry_run=dry_run, kind=kind, name=name)
    while not told["done"]:
        time.sleep(_LOOK_S)
        told = tell(runtime, worker, "resync", progress=True)
        if sys.stderr.isatty():
            click.echo(f"\r{told['looked']:,} compared", nl=told["done"], err=True)
    if told["error"]:
        raise click.ClickException(told["error"])
    if output == "json":
        click.echo(json.dumps(told, indent=2))
        return
    for one in told["objects"]:
        click.echo(f"{one['op']:<8} {one['key']}")
    if told["differed"] > len(told["objects"]):
        click.echo(f"… and {told['differed'] - len(told['objects']):,} more")
    held = f", {told['held']:,} held (holdfast plan syncer tells why)" if told["held"] else ""
    click.echo(f"{told['differed']:,} differed{held}; took {told['seconds']:g} s", err=True)
