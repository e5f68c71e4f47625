"""`holdfast inventory`: create its tables, assign it to a fleet, and choose the right side after it was restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from holdfast.cli.change.importing import compare_sides, print_group, print_refused, run_import
from holdfast.cli.change.inventory import control_session, dry_run_flag, session
from holdfast.cli.change.resync import compare, summary
from holdfast.cli.change.sides import Comparison, Divergence, requests
from holdfast.cli.change.store import carry_out
from holdfast.cli.common.config_flags import configuration_flags, effective
from holdfast.cli.common.control_socket import leading, runtime_flag
from holdfast.config import FlagValue
from holdfast.inventory.changes import ChangeKind
from holdfast.inventory.edit.importing import Imported
from holdfast.inventory.sql.migrate import migrate
from holdfast.model.control.identity import Identity, LatchedVerdict
from holdfast.store.identity import StoreIdentity, StoreVerdict, read_identity

_FOLLOWS: Mapping[str, tuple[str, Mapping[Divergence, str]]] = {
    "store": (
        "the inventory follows the store",
        {
            Divergence.NEW: "create",
            Divergence.CHANGED: "change",
            Divergence.MOVED: "move",
            Divergence.GONE: "delete",
        },
    ),
    "inventory": (
        "the store follows the inventory",
        {
            Divergence.GONE: "create",
            Divergence.CHANGED: "change",
            Divergence.MOVED: "move back",
            Divergence.NEW: "delete",
        },
    ),
}


@click.group()
def inventory() -> None:
    """Create the inventory's tables, assign its database to a fleet, or settle a restored one."""


@inventory.command()
@configuration_flags
def init(config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Create the inventory's tables, or upgrade them."""
    with session(config_file, settings, create=True) as opened:
        migrate(opened.engine)
    click.echo("the inventory's tables are up to date", err=True)


@inventory.command(short_help="Assign this database to the fleet of the store.")
@click.option("--reason", required=True, help="Why this inventory is the right one; recorded with your name.")
@configuration_flags
def assign(reason: str, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Assign this database to the fleet of the store: it has no fleet id, or another one.

    Deletes that it recorded for another fleet do not reach the store: they stay held until an operator allows them.
    """
    with control_session(config_file, settings) as opened:
        found = opened.query(lambda store: read_identity(store, opened.region)).identity
        if not isinstance(found, Identity):
            raise click.ClickException("nothing to assign: the store has no readable identity")
        opened.inventory.assign(found.fleet)
    click.echo(f"this inventory belongs to fleet {found.fleet}: “{reason}”", err=True)


@inventory.command(short_help="Choose the side that is right after a restore.")
@click.option("--keep", type=click.Choice(["store", "inventory"]), help="The side that is right; the other follows it.")
@click.option("--reason", default="", help="Why; recorded with your name. Required with --keep.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_flag
@runtime_flag
@configuration_flags
def adopt(
    keep: str | None,
    reason: str,
    yes: bool,
    dry_run: bool,
    runtime: Path,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """Choose the side that is right after the database was restored from a backup. Run it on the leader's machine.

    Without --keep, shows what either choice would change. Edits made since the restore was noticed are kept. Can be
    repeated if it was interrupted: the verdict ends last.
    """
    if keep and not reason and not dry_run:
        raise click.UsageError("--keep needs --reason; it is recorded with your name.")
    if effective(config_file, settings).config.inventory.is_neutron:
        _adopt_neutron(keep, reason, runtime, yes=yes, dry_run=dry_run)
        return
    with session(config_file, settings) as opened:
        verdict = _verdict(opened.query(lambda store: read_identity(store, opened.region)))
        found, _ = compare_sides(opened, edited_after=verdict.revision)
        click.echo(verdict.sentence, err=True)
        for side in (keep,) if keep else _FOLLOWS:
            _preview(side, found)
        if keep == "store":
            _refuse_empty_store(found)
        if not keep:
            click.echo("choose with --keep store or --keep inventory; nothing was changed", err=True)
            return
        if keep == "store":
            outcome = run_import(opened, requests(found.differences), reason, dry_run=True)
            print_refused(outcome.refused, found.unusable)
        if dry_run:
            return
        syncer = leading(runtime, "syncer")
        if not yes:
            click.confirm(f"{_FOLLOWS[keep][0]}: go on?", abort=True)
        if keep == "store":
            _follow_store(run_import(opened, requests(found.differences), reason, dry_run=False), found)
    click.echo(carry_out(runtime, syncer, side="inventory", keep=keep, reason=reason), err=True)


def _adopt_neutron(keep: str | None, reason: str, runtime: Path, *, yes: bool, dry_run: bool) -> None:
    """Neutron's objects cannot follow the store: its API makes them. So the store follows, after a preview."""
    if keep == "store":
        raise click.ClickException(
            "Neutron cannot follow the store: create what it lost through its API, then use --keep inventory"
        )
    syncer = leading(runtime, "syncer")
    for line in summary(compare(runtime, syncer, dry_run=True)):
        click.echo(line, err=True)
    if not keep or dry_run:
        click.echo("choose with --keep inventory: the store follows Neutron; nothing was changed", err=True)
        return
    if not yes:
        click.confirm(f"{_FOLLOWS[keep][0]}: go on?", abort=True)
    click.echo(carry_out(runtime, syncer, side="inventory", keep=keep, reason=reason), err=True)


def _verdict(found: StoreIdentity) -> LatchedVerdict:
    """The verdict that this command ends."""
    identity = found.identity
    verdict = identity.verdict if isinstance(identity, Identity) else None
    if verdict is None or verdict.name != StoreVerdict.INVENTORY_RESTORED.value:
        raise click.ClickException(
            "nothing to adopt: the inventory does not count as restored from a backup; to bring objects of the store "
            "into the inventory, use holdfast import"
        )
    return verdict


def _refuse_empty_store(found: Comparison) -> None:
    """Refuse to empty the inventory because the store was lost as well."""
    gone = len(found.of(Divergence.GONE))
    if gone and gone == len(found.differences) and not found.same:
        raise click.ClickException(
            "the store has no object of this region, so the inventory cannot follow it: keep the inventory, which "
            "fills the store again"
        )


def _preview(side: str | None, found: Comparison) -> None:
    sentence, words = _FOLLOWS[side or "store"]
    click.echo(f"--keep {side}: {sentence}")
    for how, word in words.items():
        print_group(f"  {word}", [(one.kind.name, one.name) for one in found.of(how)])
    if not found.differences:
        click.echo("  nothing differs")
    if found.edited or found.deleted:
        click.echo(f"  kept: {found.edited + len(found.deleted):,} edits made since the restore was noticed")


def _follow_store(outcome: Imported, found: Comparison) -> None:
    """Refuse to end the verdict while the syncer would take an object of the store back to the inventory's state. A new
    object that was refused is not in danger: the store keeps it, because its delete has no witness."""
    exists = {(one.kind.name, one.name) for one in found.differences if one.how is not Divergence.NEW}
    refused = [(request, why) for request, why in outcome.refused if (request.kind.name, request.name) in exists]
    contradicting = [one for one in found.unusable if one.contradicts]
    if refused or contradicting:
        print_refused(refused, contradicting)
        raise click.ClickException(
            f"{len(refused) + len(contradicting):,} objects cannot follow the store, so the verdict stands: apply each "
            "of them as it should be (holdfast apply), then run this again"
        )
    for did in ChangeKind:
        print_group(did.value, [(edit.kind.name, edit.name) for edit in outcome.edits if edit.did is did])
