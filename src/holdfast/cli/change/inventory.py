"""Commands on the objects of the inventory: apply, get (`cli/get`), move, delete, diff, undo."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from holdfast.cli.change.resync import print_differences
from holdfast.cli.common.completion import complete_host, complete_name
from holdfast.cli.common.config_flags import configuration_flags
from holdfast.cli.common.control_socket import CannotTell, runtime_flag
from holdfast.cli.common.etcd import query_store
from holdfast.cli.common.lab_inventory import effective_or_lab
from holdfast.cli.common.progress import progress
from holdfast.config import Config, FlagValue, Layer, Loaded
from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, WantedObject
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.edit.rules import Placement, PrefixRules
from holdfast.inventory.kinds import KINDS, host_of
from holdfast.inventory.manifest.read import ManifestRefused, read
from holdfast.inventory.open import NoInventory, configured_engine, open_backend
from holdfast.inventory.sql.control import SqlControl
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import configured_region
from holdfast.model.fleet.prefix_policy import parsed
from holdfast.runtime.caller import this_user
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.intents.drains import read_drains
from holdfast.runtime.store_client import connection
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.client import EtcdStore

R = TypeVar("R")

_CREATES_TABLES = "holdfast inventory init"

file_flag = click.option(
    "-f", "--file", "file", required=True, type=click.Path(allow_dash=True), help="File to read; - reads stdin."
)
reason_flag = click.option("--reason", default="", help="Why; recorded with your name.")
wait_flag = click.option("--wait", is_flag=True, help="Wait until the changes are in the store.")
timeout_flag = click.option("--timeout", default=60.0, show_default=True, help="Timeout of --wait in seconds.")
dry_run_flag = click.option("--dry-run", is_flag=True, help="Show changes, and make none.")


class InventorySession:
    """The configured inventory, open for one command."""

    def __init__(self, loaded: Loaded, *, create: bool = False) -> None:
        config = loaded.config
        self.region = configured_region(config)
        self._store = config.store
        self._names_store = loaded.origins["store.endpoints"].layer is not Layer.DEFAULT
        self.engine = configured_engine(config.inventory, create=create)
        self.prefixes = prefix_rules(config)
        self.editor = Editor(self.engine, self.region, prefixes=self.prefixes)
        self.inventory = SqlInventory(self.engine)

    def query(self, query: Callable[[EtcdStore], Awaitable[R]]) -> R:
        """Run a query against the configured store. Raises `StoreAway` or `StoreError`."""
        return asyncio.run(query_store(connection(self._store), query))

    def drained(self) -> Mapping[str, str]:
        """Drained hosts, each with who drained it and why. An edit does not wait for a store that is away."""
        if not self._names_store:
            return {}
        try:
            drains = self.query(lambda store: read_drains(store, self.region, datetime.now(UTC)))
        except (StoreAway, StoreError) as error:
            click.echo(f"warning: drained hosts are not known, because the store does not answer: {error}", err=True)
            return {}
        return {one.scope.name: one.sentence for one in drains}


def prefix_rules(config: Config) -> PrefixRules:
    """Rules of this configuration: prefixes of its store, as far as its names can be resolved here, and tunnels."""
    names = {name for url in config.store.endpoints if (name := urlsplit(url).hostname)}
    stores: set[str] = set()
    for name in names:
        with contextlib.suppress(OSError):  # an agent that knows the address holds the route
            stores.update(str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    addresses = frozenset(one for one in stores if "%" not in one)
    devices = frozenset({"lo", *map(config.agent.linux.device_name, (4, 6))})
    return PrefixRules(addresses, frozenset(map(parsed, config.agent.allowed_prefixes)), devices)


@contextlib.contextmanager
def session(
    config_file: str | None, settings: Sequence[FlagValue], *, create: bool = False
) -> Iterator[InventorySession]:
    """Open the inventory for the length of the block; an error ends the command with a sentence."""
    with _errors():
        opened = InventorySession(effective_or_lab(config_file, settings), create=create)
        try:
            yield opened
        finally:
            opened.engine.dispose()


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (DatabaseAway, StoreAway) as error:
        # A database without tables answers; it is waiting for the operator.
        needs_you = _CREATES_TABLES in str(error)
        raise (click.ClickException if needs_you else CannotTell)(str(error)) from error
    except (NoInventory, SecretRefused, EditRefused, ManifestRefused, StoreError, ValueError) as error:
        raise click.ClickException(str(error)) from error


class ControlSession:
    """The configured inventory of whatever kind, Neutron's as well, for commands that do not edit its objects."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.region = configured_region(config)
        self.backend = open_backend(config.inventory, self.region)
        inventory = self.backend.inventory()
        assert isinstance(inventory, SqlControl), "every inventory is in a SQL database"
        self.inventory = inventory

    def query(self, query: Callable[[EtcdStore], Awaitable[R]]) -> R:
        """Run a query against the configured store. Raises `StoreAway` or `StoreError`."""
        return asyncio.run(query_store(connection(self.config.store), query))


@contextlib.contextmanager
def control_session(config_file: str | None, settings: Sequence[FlagValue]) -> Iterator[ControlSession]:
    """Open the inventory for the length of the block; an error ends the command with a sentence."""
    with _errors():
        opened = ControlSession(effective_or_lab(config_file, settings).config)
        try:
            yield opened
        finally:
            opened.backend.close()


def kind_named(word: str, kinds: Sequence[Kind[Any, Any]] = KINDS, others: Sequence[str] = ()) -> Kind[Any, Any]:
    """Return the kind of that name. `others` are words that the command takes as well."""
    for kind in kinds:
        if word in (kind.name, kind.plural):
            return kind
    known = [*(kind.plural for kind in kinds), *others]
    raise click.UsageError(f"unknown kind {word!r}: name one of {', '.join(known)}")


@click.command()
@file_flag
@dry_run_flag
@wait_flag
@timeout_flag
@reason_flag
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
    """Create or update the objects in FILE. Applies all of them, or none.

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
    with session(config_file, settings) as opened:
        objects = read(_text(file), file, opened.region)
        drained = opened.drained() if any(one.thing and host_of(one.thing) for one in objects) else {}
        placement = Placement(drained, on_known_hosts=True)
        with progress("objects are compared and written, all or none") as show:
            show(len(objects))
            edits = opened.editor.change(objects, who=this_user(), why=reason, dry_run=dry_run, placement=placement)
        _finish(opened, edits, timeout if wait else None, dry_run=dry_run)


@click.command()
@click.argument("kind", type=click.Choice(["endpoint"]))
@click.argument("name", shell_complete=complete_name)
@click.option("--to", required=True, metavar="HOST", help="The new host.", shell_complete=complete_host)
@dry_run_flag
@wait_flag
@timeout_flag
@reason_flag
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
    """Move the endpoint NAME to another host, and end its live migration if there is one.

    For a live migration, run this after the hypervisor has switched over: from then on packets go to the new host.
    """
    with session(config_file, settings) as opened:
        placement = Placement(opened.drained(), on_known_hosts=True)
        edits = opened.editor.move(name, to, who=this_user(), why=reason, dry_run=dry_run, placement=placement)
        _finish(opened, edits, timeout if wait else None, dry_run=dry_run)


@click.command()
@click.argument("kind")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_name)
@dry_run_flag
@wait_flag
@timeout_flag
@reason_flag
@configuration_flags
def delete(
    kind: str,
    names: Sequence[str],
    dry_run: bool,
    wait: bool,
    timeout: float,
    reason: str,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """Delete objects of a KIND. Deletes all of NAMES, or none; `holdfast undo` restores one."""
    chosen = kind_named(kind)
    with session(config_file, settings) as opened:
        objects = [WantedObject(chosen, name) for name in dict.fromkeys(names)]
        edits = opened.editor.change(objects, who=this_user(), why=reason, dry_run=True)
        absent = [edit.name for edit in edits if edit.did is ChangeKind.UNCHANGED]
        if absent:
            raise click.ClickException(f"no {chosen.name} {absent[0]} in the inventory; nothing was deleted")
        edits = edits if dry_run else opened.editor.change(objects, who=this_user(), why=reason)
        _finish(opened, edits, timeout if wait else None, dry_run=dry_run)


@click.command()
@click.argument("kind")
@click.argument("name", shell_complete=complete_name)
@dry_run_flag
@wait_flag
@timeout_flag
@reason_flag
@configuration_flags
def undo(
    kind: str,
    name: str,
    dry_run: bool,
    wait: bool,
    timeout: float,
    reason: str,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """Undo the last change of an object; a deleted one is restored."""
    with session(config_file, settings) as opened:
        edits = opened.editor.undo(kind_named(kind), name, who=this_user(), why=reason, dry_run=dry_run)
        _finish(opened, edits, timeout if wait else None, dry_run=dry_run)


@click.command()
@click.argument("what", required=False, type=click.Choice(["inventory"]))
@click.option("-f", "--file", "file", type=click.Path(allow_dash=True), help="File to compare; - reads stdin.")
@click.option("--kind", help="With `inventory`: only objects of this kind, such as endpoints.")
@click.option("--name", help="With `inventory`: only the object of this name; needs --kind.")
@click.option("--network", help="With `inventory`: only endpoints of this network.")
@click.option("--worker", help="With `inventory`: syncer to ask. Default: the leader's.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    help="With `inventory`: output format.",
)
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
    """Show differences line by line. Exits with 1 if there are any.

    With -f FILE, what `apply -f FILE` would change in the inventory; with `inventory`, what a resync would change in
    the store.
    """
    if (what is None) == (file is None):
        raise click.UsageError("give either -f FILE, or inventory.")
    if file is None:
        print_differences(runtime, worker, output, **scope)
    else:
        _print_file_differences(file, config_file, settings)


def _print_file_differences(file: str, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    with session(config_file, settings) as opened:
        edits = opened.editor.change(read(_text(file), file, opened.region), who=this_user(), dry_run=True)
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
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} cannot be read: it is not text in UTF-8") from error


def _finish(opened: InventorySession, edits: Sequence[Edit], wait: float | None, *, dry_run: bool) -> None:
    """Print the edits, and wait for that many seconds until they are in the store."""
    _print_edits(edits, dry_run)
    if wait is not None and not dry_run:
        _wait(opened, edits, wait)


def _print_edits(edits: Sequence[Edit], dry_run: bool) -> None:
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
    with progress("changes in the store", len(revisions)) as show:
        while left := opened.inventory.unsettled(revisions):
            show(len(revisions) - len(left))
            if time.monotonic() > until:
                raise click.ClickException(
                    f"{len(left):,} changes are not in the store after {timeout:g} s: see holdfast status"
                )
            time.sleep(0.05)
    click.echo("the changes are in the store", err=True)


def document(doc: bytes) -> dict[str, Any] | None:
    """Decode a document of any version; None if it is not a JSON object."""
    try:
        return msgspec.json.decode(doc, type=dict[str, Any])
    except ValueError:
        return None


def _lines(doc: bytes | None) -> list[str]:
    if doc is None:
        return []
    found = document(doc)
    return ["(unreadable)"] if found is None else json.dumps(found, indent=2).splitlines()
