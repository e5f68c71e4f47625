"""`holdfast import`: bring objects that exist in the store into the inventory, as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast.cli.change.inventory import InventorySession, dry_run_flag, reason_flag, session
from holdfast.cli.change.sides import Comparison, Difference, Divergence, Unusable, compare, requests, without_deleted
from holdfast.cli.common.config_flags import INVALID, UNREADABLE, configuration_flags
from holdfast.cli.common.progress import progress
from holdfast.config import FlagValue
from holdfast.inventory.api import Row
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.edit.importing import Imported, bring_in, scratch_copy
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.bad import Bad
from holdfast.model.control.identity import Identity
from holdfast.model.control.leader import NEUTRON_LEADER
from holdfast.runtime.caller import this_user
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry, Store
from holdfast.store.identity import ADOPT, StoreIdentity, read_identity

WATCHED_S = 2.0
"""Seconds between two readings of the store: a controller that is still writing shows in the difference."""
NAMES_SHOWN = 5
_PAGE = 5_000
_IMPORTED = "imported from the store"
ASSIGN = "holdfast inventory assign --reason WHY"


@dataclass(frozen=True)
class RegionReading:
    """The region's objects in the store at one revision, its identity, and signs of another controller."""

    entries: Sequence[Entry]
    identity: StoreIdentity
    warnings: Sequence[str]


async def read_store(store: Store, layout: RegionKeys, watched_s: float) -> RegionReading:
    """Read the store twice, and return the later reading."""
    first = {entry.key: entry.mod_revision for entry in await _entries(store, layout, keys_only=True)}
    await asyncio.sleep(watched_s)
    entries = await _entries(store, layout)
    warnings = list(_moving(first, entries))
    key = NEUTRON_LEADER.key(layout.region, "neutron-leader")
    leader = await store.get(key)
    if leader is not None:
        found = NEUTRON_LEADER.decode(key, leader.value)
        where = "" if isinstance(found, Bad) else f" on {found.host} (pid {found.pid})"
        warnings.append(f"networking-calico leads{where} and writes to this store: stop it before Holdfast takes over")
    return RegionReading(entries, await read_identity(store, layout.region), warnings)


def _moving(first: dict[bytes, int], entries: Sequence[Entry]) -> Sequence[str]:
    """Warn if any key was written or deleted since the first reading."""
    changed = [entry.key for entry in entries if first.pop(entry.key, 0) != entry.mod_revision] + list(first)
    if not changed:
        return ()
    example = min(changed).decode(errors="backslashreplace")
    sentence = (
        f"{len(changed):,} keys changed while they were read, such as {example}: if another controller writes to this "
        "store, stop it and run this again"
    )
    return (sentence,)


async def _entries(store: Store, layout: RegionKeys, *, keys_only: bool = False) -> Sequence[Entry]:
    """All keys under our prefixes, at one revision."""
    found: list[Entry] = []
    revision = 0
    for prefix in layout.prefixes:
        async for page in store.list(prefix, revision=revision, keys_only=keys_only):
            revision = revision or page.revision
            found += page.entries
    return found


def read_rows(inventory: SqlInventory) -> Sequence[Row]:
    """All objects of the inventory at one moment."""
    snapshot = inventory.snapshot()
    try:
        rows: list[Row] = []
        while page := snapshot.read(rows[-1].key if rows else None, _PAGE):
            rows += page
        return rows
    finally:
        snapshot.close()


def compare_sides(
    opened: InventorySession, edited_after: int | None = None, watched_s: float = 0.0
) -> tuple[Comparison, RegionReading]:
    """Read both sides, the store first (C36), and compare them. What the inventory edited or deleted after that
    revision is left out; without one, everything that it deleted."""
    layout = RegionKeys(opened.region, opened.inventory.kinds)
    reading = opened.query(lambda store: read_store(store, layout, watched_s))
    rows = read_rows(opened.inventory)
    ignored = opened.inventory.ignored()
    found = compare(layout, reading.entries, rows, ignored=ignored, edited_after=edited_after)
    witnesses = opened.inventory.witness([one.entry.key for one in found.of(Divergence.NEW) if one.entry is not None])
    return without_deleted(found, witnesses, edited_after or 0), reading


def run_import(opened: InventorySession, wanted: Sequence[WantedObject], why: str, dry_run: bool) -> Imported:
    """Bring the requests in, or find out on a copy what that would do."""
    with progress("objects", len(wanted)) as show:
        if not dry_run:
            return bring_in(opened.editor, wanted, who=this_user(), why=why, progress=show)
        with scratch_copy(opened.engine) as copy:
            editor = Editor(copy, opened.region, prefixes=opened.prefixes)
            return bring_in(editor, wanted, who=this_user(), why=why, progress=show)


def print_group(word: str, titles: Sequence[tuple[str, str]]) -> None:
    """Print one line per kind: how many, and the first names. Titles are pairs of kind and name."""
    for kind in KINDS:
        names = sorted(name for of, name in titles if of == kind.name)
        if names:
            more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
            what = kind.name if len(names) == 1 else kind.plural
            click.echo(f"{word:<14} {len(names):,} {what}: {', '.join(names[:NAMES_SHOWN])}{more}")


def print_refused(refused: Sequence[tuple[WantedObject, str]], unusable: Sequence[Unusable]) -> None:
    """Name each object that cannot be imported."""
    for request, why in refused:
        click.echo(f"{'refused':<14} {request.kind.name} {request.name}: {why}")
    for one in unusable:
        click.echo(f"{'refused':<14} {one.title}: {one.why}")


@click.group(name="import", invoke_without_command=True)
@click.option("--from-etcd", is_flag=True, help="Import from the configured etcd. The default, and the only source.")
@dry_run_flag
@reason_flag
@configuration_flags
@click.pass_context
def import_objects(
    context: click.Context,
    from_etcd: bool,
    dry_run: bool,
    reason: str,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """Bring the region's existing objects from the store into the inventory, as they are.

    Afterwards the syncer finds nothing to change in them. Objects that the inventory has already stay as they are.
    What cannot be imported is listed with the reason, and the exit status is 1 then. `holdfast import maglevd` is about
    a file of maglevd instead.
    """
    if context.invoked_subcommand is not None:
        return
    with session(config_file, settings) as opened:
        found, reading = compare_sides(opened, watched_s=WATCHED_S)
        _refuse_other_fleet(opened, reading)
        for warning in reading.warnings:
            click.echo(f"warning: {warning}", err=True)
        outcome = run_import(opened, requests(found.of(Divergence.NEW)), reason or _IMPORTED, dry_run)
        fleet = opened.inventory.fleet()
    print_group("would import" if dry_run else "imported", [(edit.kind.name, edit.name) for edit in outcome.edits])
    print_refused(outcome.refused, found.unusable)
    for one in (*found.of(Divergence.CHANGED), *found.of(Divergence.MOVED)):
        click.echo(f"{'differs':<14} {one.title}: {_difference(one)}")
    for title, witness in found.deleted.items():
        click.echo(
            f"{'deleted':<14} {title}: {witness.who} deleted it from the inventory (revision {witness.revision})"
        )
    click.echo(_summary(found), err=True)
    for line in _next_steps(reading.identity, fleet):
        click.echo(line, err=True)
    if outcome.refused or found.unusable:
        raise click.exceptions.Exit(1)


def _refuse_other_fleet(opened: InventorySession, reading: RegionReading) -> None:
    """Refuse a store of another fleet. One without an identity, and an inventory without a fleet id, are fine."""
    identity, fleet = reading.identity.identity, opened.inventory.fleet()
    if isinstance(identity, Identity) and fleet not in (None, identity.fleet):
        raise click.ClickException(
            f"the store belongs to fleet {identity.fleet} and this inventory to fleet {fleet}, so nothing was "
            "imported: check store.endpoints and inventory.database"
        )


def _next_steps(found: StoreIdentity, fleet: str | None) -> Sequence[str]:
    """The command that is left before the syncer writes to this store, if there is one."""
    if found.identity is None:
        return (f"the store has no identity yet: if holdfast diff inventory shows what you expect, run {ADOPT}",)
    return () if fleet else (f"the database has no fleet id yet: run {ASSIGN}",)


def _difference(one: Difference) -> str:
    where = f" ({one.how.value})" if one.how is Divergence.MOVED else ""
    return f"left as it is in the inventory{where}; see holdfast diff inventory"


def _summary(found: Comparison) -> str:
    counts = [f"{found.same:,} are in the inventory already and equal"]
    if gone := len(found.of(Divergence.GONE)):
        counts.append(f"{gone:,} are only in the inventory")
    if found.not_ours:
        counts.append(f"{found.not_ours:,} other keys are not ours")
    return "; ".join(counts)


@import_objects.command(short_help="Print a maglevd configuration as one of ours.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def maglevd(file: Path) -> None:
    """Print FILE, a configuration of vpp-maglev's maglevd, as a configuration of `holdfast balancer`.

    Nothing is left out: every key that has no translation is reported with its line. Exits with 1 if the file cannot be
    translated, and with 3 if it cannot be read.
    """
    from holdfast.balancer.services.maglevd.translate import translate

    try:
        data = file.read_bytes()
    except OSError as error:
        click.echo(f"{file}: cannot be read: {error.strerror}", err=True)
        raise click.exceptions.Exit(UNREADABLE) from None
    made = translate(str(file), data)
    if made.rejected is not None:
        click.echo(str(made.rejected), err=True)
        raise click.exceptions.Exit(INVALID)
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(made.text, nl=False)
