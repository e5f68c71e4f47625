"""`holdfast resync` and `diff inventory`: compare the inventory with the store now, on the leader."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import leading, request_change, runtime_flag, send_command
from holdfast.cli.common.format import DOCUMENTS, output_flag, print_document
from holdfast.cli.common.progress import progress
from holdfast.server.syncer.witness import OPENS

_POLL_S = 0.2
_SHOWN = 60
"""Lines of one object's difference that are shown."""


def compare(runtime: Path, worker: str, **args: Any) -> dict[str, Any]:
    """Start a comparison and wait for its result; shows the progress on a terminal."""
    result: dict[str, Any] = request_change(runtime, worker, "resync", **args)
    with progress("objects compared") as show:
        while not result["done"]:
            time.sleep(_POLL_S)
            result = send_command(runtime, worker, "resync", progress=True)
            show(result["looked"])
    if result["error"]:
        raise click.ClickException(result["error"])
    return result


@click.command()
@click.option("--dry-run", is_flag=True, help="Show differences, and change nothing.")
@click.option("--kind", help="Only objects of this kind, such as endpoints.")
@click.option("--name", help="Only the object of this name; needs --kind.")
@click.option("--worker", help="Syncer to ask, in a lab DAEMON/syncer. Default: the leader's.")
@output_flag
@runtime_flag
def resync(dry_run: bool, kind: str | None, name: str | None, worker: str | None, output: str, runtime: Path) -> None:
    """Compare the inventory with the store now, and fix the store. Run it on the leader's machine."""
    print_outcome(compare(runtime, worker or leading(runtime, "syncer"), dry_run=dry_run, kind=kind, name=name), output)


def print_outcome(result: dict[str, Any], output: str) -> None:
    """Print what a resync found, and how it ended."""
    if output in DOCUMENTS:
        print_document(result, output)
        return
    _print_objects(result["objects"])
    _more(result)
    for line in _group_summary(result):
        click.echo(line, err=True)
    held = f", {result['held']:,} held (see holdfast plan syncer)" if result["held"] else ""
    click.echo(f"{result['differed']:,} differed{held}; took {result['seconds']:g} s", err=True)


def print_differences(runtime: Path, worker: str | None, output: str, **scope: str | None) -> None:
    """Print every difference between inventory and store. Ends the command with exit code 1 if there is one."""
    show_differences(compare(runtime, worker or leading(runtime, "syncer"), dry_run=True, values=True, **scope), output)


def show_differences(result: dict[str, Any], output: str, lines: Sequence[str] = ()) -> None:
    """Print differences and further lines. Ends the command with exit code 1 if there is a difference."""
    if output in DOCUMENTS:
        print_document(result, output)
    else:
        _print_objects(result["objects"])
        _more(result)
        for line in (*summary(result), *lines):
            click.echo(line, err=True)
    if result["differed"]:
        raise click.exceptions.Exit(1)


_HEADINGS = {
    "drift": "Drift, to be fixed:",
    "move": "Moves, wanted under another key now:",
    "witnessed": "Deletes that the inventory recorded:",
    "unwitnessed": "Unwitnessed, held, because no recorded change of the inventory deleted it:",
}


def _print_objects(objects: list[dict[str, Any]]) -> None:
    """Print the differences by group; drift alone needs no heading."""
    arrived = {one.get("to") for one in objects}
    shown = [one for one in objects if one["op"] == "delete" or one["group"] != "move" or one["key"] not in arrived]
    for group, heading in _HEADINGS.items():
        members = [one for one in shown if one["group"] == group]
        if members and any(one["group"] != "drift" for one in shown):
            click.echo(heading)
        for one in members:
            click.echo(_line(one))
            for line in _lines(one) if one["op"] == "replace" and "old" in one else ():
                click.echo(f"  {line}")


def _line(one: dict[str, Any]) -> str:
    if "to" in one:
        return f"{'move':<8} {one['key']} → {one['to']}"
    at = f" at {one['at'][:19]}Z" if one.get("at") else ""
    recorded = f"  by {one['who']}{at}, revision {one['revision']}" if "who" in one else ""
    return f"{one['op']:<8} {one['key']}{recorded}"


def _lines(one: dict[str, Any]) -> list[str]:
    lines = list(difflib.unified_diff(_pretty(one["old"]), _pretty(one["new"]), lineterm="", n=0))
    return [line for line in lines[2:] if not line.startswith("@@")][:_SHOWN]


def _pretty(text: str) -> list[str]:
    try:
        return json.dumps(json.loads(text), indent=2, sort_keys=True).splitlines()
    except ValueError:
        return [text]


def _more(result: dict[str, Any]) -> None:
    if result["differed"] > len(result["objects"]):
        click.echo(f"… and {result['differed'] - len(result['objects']):,} more")


def summary(result: dict[str, Any]) -> list[str]:
    """Return the counts per operation, and the share of deletes per network."""
    counts = ", ".join(f"{result[op]:,} to {op}" for op in ("create", "replace", "delete"))
    lines = [f"{result['differed']:,} differ: {counts}" if result["differed"] else "inventory and store are in sync"]
    lines += _group_summary(result)
    for name, of in result["networks"].items():
        where = f"network {name}" if name else "no network"
        share = f"{of['delete'] / of['of']:.0%}"
        lines.append(f"{where}: {of['delete']:,} of {of['of']:,} endpoints would be deleted ({share})")
    return lines


def _group_summary(result: dict[str, Any]) -> list[str]:
    """Return the counts per group if there is more than drift, and how many objects are ignored."""
    groups, lines = result["groups"], []
    if groups["move"] or groups["witnessed"] or groups["unwitnessed"]:
        deletes = f"recorded deletes: {groups['witnessed']:,}, unwitnessed: {groups['unwitnessed']:,}"
        lines.append(f"drift: {groups['drift']:,}, moves: {groups['move']:,}, {deletes}")
    if groups["unwitnessed"]:
        lines.append(f"To release the unwitnessed: {OPENS}")
    if result["ignored"]:
        lines.append(f"{result['ignored']:,} ignored: see holdfast ignore --list")
    return lines
