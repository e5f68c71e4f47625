"""The inventory's commands: init, adopt; apply, get, move, delete, diff and undo what should be there."""

from __future__ import annotations

import contextlib
import difflib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.change.resync import differences
from holdfast.cli.common.config_flags import configuration_flags, effective
from holdfast.cli.common.control_socket import runtime_flag
from holdfast.cli.common.etcd import EtcdOptions, who
from holdfast.config import Config, FlagValue
from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, StoredObject, WantedObject
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import KINDS, belongs
from holdfast.inventory.manifest import write as transcript
from holdfast.inventory.manifest.read import ManifestRefused, read
from holdfast.inventory.open import NoInventory, configured_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.control.identity import Identity
from holdfast.runtime.config_file import SecretRefused
from holdfast.store.identity import read_identity

file_flag = click.option(
    "-f", "--file", "file", required=True, type=click.Path(allow_dash=True), help="The file; -: stdin."
)
why_flag = click.option("--reason", default="", help="Why; it is kept with your name.")
wait_flag = click.option("--wait", is_flag=True, help="Return when the store has it.")
timeout_flag = click.option("--timeout", default=60.0, show_default=True, help="For how many seconds --wait waits.")
dry_flag = click.option("--dry-run", is_flag=True, help="Only tell what would change.")
output_flag = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    help="Form of the output; yaml is a file for apply.",
)


class InventorySession:
    """The configured inventory, open for one command."""

    def __init__(self, config: Config) -> None:
        self.region = Region(config.store.region or "")
        self.endpoints = ",".join(config.store.endpoints)
        self.engine = configured_engine(config.inventory)
        self.editor = Editor(self.engine, self.region)
        self.inventory = SqlInventory(self.engine)


@contextlib.contextmanager
def desk(config_file: str | None, settings: Sequence[FlagValue]) -> Iterator[InventorySession]:
    """What goes wrong is one sentence and exit code 1."""
    try:
        opened = InventorySession(effective(config_file, settings).config)
        try:
            yield opened
        finally:
            opened.engine.dispose()
    except (NoInventory, SecretRefused, DatabaseAway, EditRefused, ManifestRefused, ValueError) as error:
        raise click.ClickException(str(error)) from error


def kind_named(word: str) -> Kind[Any, Any]:
    for kind in KINDS:
        if word in (kind.name, kind.plural):
            return kind
    raise click.UsageError(
        f"there is no kind {word!r} in the inventory; there are: {', '.join(k.plural for k in KINDS)}"
    )


@click.group()
def inventory() -> None:
    """The source of truth: its tables, and whose it is."""


@inventory.command()
@configuration_flags
def init(config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Make the inventory's tables, or bring them up to date."""
    with desk(config_file, settings) as opened:
        migrate(opened.engine)
    click.echo("the inventory's tables are there and up to date", err=True)


@inventory.command()
@click.option("--reason", required=True, help="Why this inventory is right for this store.")
@configuration_flags
def adopt(reason: str, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Say that this inventory is the one of the fleet in the store; deletes are then judged by the brake alone."""
    with desk(config_file, settings) as opened:
        reach = EtcdOptions({"config": config_file, "endpoints": opened.endpoints})
        found = reach.ask(lambda store: read_identity(store, opened.region)).identity
        if not isinstance(found, Identity):
            raise click.ClickException("the store has no readable identity, so there is nothing to adopt")
        opened.editor.adopt(found.fleet)
    click.echo(f"this inventory is fleet {found.fleet}'s: “{reason}”", err=True)


@click.command()
@file_flag
@dry_flag
@wait_flag
@timeout_flag
@why_flag
@configuration_flags
def apply(
    file: str,
    dry_run: bool,
    wait: bool,
    timeout: float,
    reason: str,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """Make the inventory say what FILE says about the objects in it. All of it, or nothing.

    \b
    - kind: host
      name: r12-01
      spec: {bgp: {ipv4Address: 192.0.2.7/24}}
    - kind: network
      name: red
      spec: {prefixes: [10.28.0.0/16]}
    - kind: endpoint
      network: red
      spec: {node: r12-01, workload: web, endpoint: eth0, interfaceName: tap-web, ipNetworks: [10.28.0.7]}
    - kind: migration
      name: holdfast-web-eth0
      spec: {to: r12-02}
    - kind: backend
      name: web-1
      spec: {endpoint: holdfast-web-eth0, port: 80}
    - kind: frontend
      name: web
      spec: {address: 203.0.113.10, port: 80, pools: [{backends: {web-1: {}}}]}
    """
    with desk(config_file, settings) as opened:
        wishes = read(_text(file), file, opened.region)
        edits = opened.editor.change(wishes, who=who(), why=reason, dry_run=dry_run)
        _tell(edits, dry_run)
        if wait and not dry_run:
            _wait(opened, edits, timeout)


@click.command()
@click.argument("kind", type=click.Choice(["endpoint"]))
@click.argument("name")
@click.option("--to", required=True, metavar="HOST", help="The host that it is on from now on.")
@dry_flag
@wait_flag
@timeout_flag
@why_flag
@configuration_flags
def move(
    kind: str,
    name: str,
    to: str,
    dry_run: bool,
    wait: bool,
    timeout: float,
    reason: str,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """Put the endpoint NAME on another host; nothing else of it changes. That ends its migration.

    A workload that migrates is put on its new host after the hypervisor has switched over: from then on packets for it
    go there.
    """
    with desk(config_file, settings) as opened:
        edits = opened.editor.move(name, to, who=who(), why=reason, dry_run=dry_run)
        _tell(edits, dry_run)
        if wait and not dry_run:
            _wait(opened, edits, timeout)


@click.command()
@click.argument("kind")
@click.argument("name", required=False)
@click.option("--network", help="Only endpoints on this network.")
@output_flag
@configuration_flags
def get(
    kind: str,
    name: str | None,
    network: str | None,
    output: str,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """What should be there: all objects of a KIND, or one by NAME."""
    chosen = kind_named(kind)
    with desk(config_file, settings) as opened:
        found = opened.editor.objects(chosen, name, network)
        if name is not None and not found:
            raise EditRefused(f"there is no {chosen.name} {name} in the inventory")
        _show(chosen, found, opened.region, output)


@click.command()
@click.argument("kind")
@click.argument("names", nargs=-1, required=True)
@dry_flag
@why_flag
@configuration_flags
def delete(
    kind: str, names: Sequence[str], dry_run: bool, reason: str, config_file: str | None, settings: Sequence[FlagValue]
) -> None:
    """Delete the objects NAMES of a KIND. All of them, or nothing; `holdfast undo` brings one back."""
    chosen = kind_named(kind)
    with desk(config_file, settings) as opened:
        wishes = [WantedObject(chosen, name) for name in dict.fromkeys(names)]
        edits = opened.editor.change(wishes, who=who(), why=reason, dry_run=True)
        absent = [edit.name for edit in edits if edit.did is ChangeKind.UNCHANGED]
        if absent:
            raise click.ClickException(
                f"there is no {chosen.name} {absent[0]} in the inventory, so nothing was deleted"
            )
        _tell(edits if dry_run else opened.editor.change(wishes, who=who(), why=reason), dry_run)


@click.command()
@click.argument("kind")
@click.argument("name")
@dry_flag
@why_flag
@configuration_flags
def undo(
    kind: str, name: str, dry_run: bool, reason: str, config_file: str | None, settings: Sequence[FlagValue]
) -> None:
    """Make an object what it was before its last change; a deleted one comes back."""
    with desk(config_file, settings) as opened:
        _tell(opened.editor.undo(kind_named(kind), name, who=who(), why=reason, dry_run=dry_run), dry_run)


@click.command()
@click.argument("what", required=False, type=click.Choice(["inventory"]))
@click.option("-f", "--file", "file", type=click.Path(allow_dash=True), help="The file; -: stdin.")
@click.option("--kind", help="With `inventory`: only objects of this kind, such as endpoints.")
@click.option("--name", help="With `inventory`: only the object of this name; needs --kind.")
@click.option("--network", help="With `inventory`: only endpoints on this network.")
@click.option("--worker", help="With `inventory`: the syncer that is asked. Default: the one here that leads.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="With `inventory`.")
@runtime_flag
@configuration_flags
def diff(
    what: str | None,
    file: str | None,
    worker: str | None,
    output: str,
    runtime: Path,
    config_file: str | None,
    settings: Sequence[FlagValue],
    **scope: str | None,
) -> None:
    """What differs, line by line; exit code 1 when there is something.

    With -f FILE what `apply -f FILE` would change in the inventory; with `inventory` what a resync would change in the
    store.
    """
    if (what is None) == (file is None):
        raise click.UsageError("say either -f FILE, or inventory.")
    if file is None:
        differences(runtime, worker, output, **scope)
    else:
        _differs_from(file, config_file, settings)


def _differs_from(file: str, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    with desk(config_file, settings) as opened:
        edits = opened.editor.change(read(_text(file), file, opened.region), who=who(), dry_run=True)
    changes = [edit for edit in edits if edit.did is not ChangeKind.UNCHANGED]
    for edit in changes:
        lines = difflib.unified_diff(_lines(edit.old), _lines(edit.new), lineterm="", n=1)
        because = f": {edit.because}" if edit.because else ""
        click.echo(f"{edit.did.value} {edit.kind.name} {edit.name}{because}")
        for line in list(lines)[2:]:
            click.echo(f"  {line}")
    if changes:
        raise click.exceptions.Exit(1)


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} cannot be read: {error}") from error


def _tell(edits: Sequence[Edit], dry_run: bool) -> None:
    for edit in edits:
        if edit.did is not ChangeKind.UNCHANGED:
            done = f"ended: {edit.because}" if edit.because else edit.did.value
            click.echo(f"{edit.kind.name} {edit.name} {'would be ' if dry_run else ''}{done}")
    same = sum(edit.did is ChangeKind.UNCHANGED for edit in edits)
    if same:
        click.echo(f"{same:,} unchanged", err=True)


def _wait(opened: InventorySession, edits: Sequence[Edit], timeout: float) -> None:
    revisions = {edit.revision for edit in edits if edit.did is not ChangeKind.UNCHANGED}
    until = time.monotonic() + timeout
    while left := opened.inventory.unsettled(revisions):
        if time.monotonic() > until:
            raise click.ClickException(f"{len(left):,} changes are not in the store yet: holdfast status tells why")
        time.sleep(0.05)
    click.echo("the store has it", err=True)


def _show(kind: Kind[Any, Any], found: Sequence[StoredObject], region: Region, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(list(_documents(kind, found)), indent=2))
    elif output == "yaml":
        click.echo(_file(kind, found, region), nl=False)
    else:
        _table(kind, found, region, wide=output == "wide")


def _table(kind: Kind[Any, Any], found: Sequence[StoredObject], region: Region, *, wide: bool) -> None:
    columns = [column for column in kind.columns if wide or not column.wide]
    rows = [[column.header for column in columns]]
    for one in found:
        read_back = _read_back(kind, one, region)
        if isinstance(read_back, str):
            rows.append([one.name, read_back])
        else:
            rows.append([column.cell(*read_back) for column in columns])
    widths = [max(len(row[n]) for row in rows if n < len(row)) for n in range(len(columns))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())


def _file(kind: Kind[Any, Any], found: Sequence[StoredObject], region: Region) -> str:
    described: list[dict[str, Any]] = []
    for one in found:
        read_back = _read_back(kind, one, region)
        if isinstance(read_back, str):
            click.echo(f"{kind.name} {one.name} {read_back}, and is left out", err=True)
        else:
            described.append(transcript.described(kind, one.name, read_back[1]))
    return transcript.text(described)


def _read_back(kind: Kind[Any, Any], one: StoredObject, region: Region) -> tuple[Any, Any] | str:
    """The name in its key and the object itself, or why they cannot be shown."""
    name, thing = kind.parse(one.key, region), kind.decode(one.key, one.doc)
    if not belongs(kind, one.key, thing, region):
        return "belongs to another region"
    if isinstance(name, Bad) or isinstance(thing, Bad):
        return "cannot be read by this version"
    return name, thing


def _documents(kind: Kind[Any, Any], found: Sequence[StoredObject]) -> Iterator[dict[str, Any]]:
    for one in found:
        document = _document(one.doc)
        if document is None:
            click.echo(f"{kind.name} {one.name} cannot be read, and is left out", err=True)
        else:
            yield {"name": one.name, **document}


def _document(doc: bytes) -> dict[str, Any] | None:
    """What stands in the inventory, also of another version; None where that is no JSON object."""
    try:
        return msgspec.json.decode(doc, type=dict[str, Any])
    except ValueError:
        return None


def _lines(doc: bytes | None) -> list[str]:
    if doc is None:
        return []
    document = _document(doc)
    return ["(it cannot be read)"] if document is None else json.dumps(document, indent=2).splitlines()
