"""`holdfast store adopt`: accept a store that was restored from a backup, or that has objects but no identity; and
`holdfast store roles`: the roles of etcd's own authentication."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from holdfast.cli.change.resync import compare, summary
from holdfast.cli.common.config_flags import configuration_flags, effective
from holdfast.cli.common.control_socket import leading, request_change, roles, runtime_flag, send_command, workers_named
from holdfast.cli.common.etcd import EtcdOptions, store_flags
from holdfast.config import FlagValue
from holdfast.inventory.open import NoInventory, open_backend
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.model.base.name import NameRefused
from holdfast.model.base.region import Region, configured_region
from holdfast.model.control.identity import Identity
from holdfast.reconcile import Away
from holdfast.runtime.caller import this_user
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.server.identity.first_start import AdoptionRefused, adopt_first_start, check_first_start
from holdfast.server.identity.judge import IdentityJudge
from holdfast.server.identity.reports import read_restore_reports
from holdfast.server.syncer.differences import find_differences
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Store
from holdfast.store.identity import SeenStore, StoreVerdict, classify_store, raise_epoch, read_identity
from holdfast.store.roles import agent_grants, balancer_grants, etcdctl_commands, server_grants

_POLL_S = 0.2


@click.group()
def store() -> None:
    """Accept a store that was restored from a backup, or print the roles that its users need."""


@store.command("roles", short_help="Print the commands that create users and roles.")
@click.option("--host", "hosts", multiple=True, help="Also the role of the agent on this host. Can be repeated.")
@click.option("--balancer", "balancers", multiple=True, help="Also the role of this balancer. Can be repeated.")
@click.option("--region", help="Region, where several share an etcd.")
@click.option("--passwords", metavar="FOLDER", help="Folder with each user's password, in a file of the user's name.")
@configuration_flags
def print_roles(
    hosts: tuple[str, ...],
    balancers: tuple[str, ...],
    region: str | None,
    passwords: str | None,
    config_file: str | None,
    settings: tuple[FlagValue, ...],
) -> None:
    """Print the commands of etcdctl that create users and roles: `holdfast store roles --host r1-01 | sh -e`.

    Servers write the region; an agent or balancer reads what is shared and writes only its own report. `etcdctl user
    add` asks for each password, or with --passwords takes it from a file. Then add the user root, and run `etcdctl auth
    enable`.
    """
    chosen = (*settings, *([FlagValue("--region", "store.region", region)] if region is not None else []))
    place = configured_region(effective(config_file, chosen).config)
    grants = server_grants(place)
    try:
        for host in hosts:
            grants += agent_grants(place, host)
        for name in balancers:
            grants += balancer_grants(place, name)
    except NameRefused as refused:
        raise click.ClickException(str(refused)) from refused
    for command in etcdctl_commands(grants, passwords):
        click.echo(command)


@store.command(short_help="Accept a store that was restored from a backup.")
@click.option("--reason", required=True, help="Why this store is the right one; recorded with your name.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and adopt nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--without-refill", is_flag=True, help="Do not wait until the leader has refilled the store.")
@runtime_flag
@store_flags
def adopt(reason: str, dry_run: bool, yes: bool, without_refill: bool, runtime: Path, **given: str | None) -> None:
    """Accept a store that was restored from a backup, or that has objects but no identity.

    With an inventory the leader carries it out: run it on the leader's machine. It shows what would change, and waits
    until the store was refilled from the inventory. Then the epoch rises, which releases deletes in the whole fleet.
    Before the first start there is no leader: it names inventory and store itself, and deletes nothing.
    """
    syncer = _syncer(runtime)
    if syncer is not None:
        _ask_leader(runtime, syncer, reason, dry_run=dry_run, yes=yes, without_refill=without_refill)
        return
    options = EtcdOptions(given)
    if options.config.inventory.database is not None and _memory(options) is None:
        _adopt_first_start(options, reason, dry_run=dry_run, yes=yes)
        return
    remembered = _remembered(options)
    identity = options.query(lambda one: _adopt(one, options.region, remembered, reason, dry_run=dry_run))
    would = "would continue" if dry_run else "continues"
    click.echo(f"fleet {identity.fleet} {would} with epoch {identity.epoch}: “{reason}”", err=True)


def _syncer(runtime: Path) -> str | None:
    """The syncer of this machine that leads; None without a server, or if its server has no inventory."""
    if not any(role.rpartition("/")[2] == "server" for role in roles(runtime)) or not workers_named(runtime, "syncer"):
        return None
    syncer = leading(runtime, "syncer")
    try:
        send_command(runtime, syncer, "held")
    except click.ClickException as declined:
        if "has no inventory" in declined.message:
            return None
        raise
    return syncer


def _ask_leader(runtime: Path, syncer: str, reason: str, *, dry_run: bool, yes: bool, without_refill: bool) -> None:
    reports = send_command(runtime, syncer, "adopt", side="store", preview=True)["reports"]
    for line in [*summary(compare(runtime, syncer, dry_run=True)), reports]:
        click.echo(line, err=True)
    if dry_run:
        return
    if not yes:
        click.confirm("adopt the store?", abort=True)
    click.echo(carry_out(runtime, syncer, side="store", reason=reason, without_refill=without_refill), err=True)


def carry_out(runtime: Path, syncer: str, **args: Any) -> str:
    """Have the leader adopt store or inventory, and wait for it; returns its sentence."""
    state: dict[str, Any] = request_change(runtime, syncer, "adopt", **args)
    while not state["done"]:
        time.sleep(_POLL_S)
        state = send_command(runtime, syncer, "adopt", progress=True)
    if state["error"]:
        raise click.ClickException(state["error"])
    return str(state["sentence"])


def _adopt_first_start(options: EtcdOptions, reason: str, *, dry_run: bool, yes: bool) -> None:
    """Adopt a store that another controller has filled, before any server of this fleet was started."""
    try:
        backend = open_backend(options.config.inventory, options.region)
    except (NoInventory, SecretRefused, ValueError) as error:
        raise click.ClickException(str(error)) from error
    inventory, thread = backend.inventory(), DatabaseThread("adopt")
    layout = RegionKeys(options.region, inventory.kinds)

    def judge(one: Store) -> IdentityJudge:
        return IdentityJudge(one, options.region, inventory, thread, lambda: None, layout.is_ours)

    async def preview(one: Store) -> dict[str, Any]:
        await check_first_start(judge(one))
        now = SystemClock().now
        found = await find_differences(inventory, thread, one, layout, lambda _change: True, now, most=0)
        return found.report(layout, values=False)

    try:
        for line in summary(options.query(preview)):
            click.echo(line, err=True)
        if dry_run:
            return
        if not yes:
            click.confirm("adopt the store?", abort=True)
        identity = options.query(lambda one: adopt_first_start(judge(one), who=this_user(), why=reason))
    except (AdoptionRefused, Away) as error:
        raise click.ClickException(str(error)) from error
    finally:
        thread.close()
        backend.close()
    click.echo(
        f"fleet {identity.fleet} begins with epoch {identity.epoch}: “{reason}”; its first leader writes what differs",
        err=True,
    )


def _memory(options: EtcdOptions) -> SeenStore | None:
    try:
        return StoreMemory(options.state_folder, "server").load()
    except MemoryUnreadable as unreadable:
        raise click.ClickException(str(unreadable)) from unreadable


def _remembered(options: EtcdOptions) -> SeenStore:
    remembered = _memory(options)
    if remembered is None:
        raise click.ClickException(
            f"no store identity is recorded in {options.state_folder}: run this on a server of the fleet"
        )
    return remembered


async def _adopt(one: Store, region: Region, remembered: SeenStore, reason: str, *, dry_run: bool) -> Identity:
    """Write the higher epoch to the store only: every daemon learns it when it reads the identity next."""
    found = await read_identity(one, region)
    judgement = classify_store(remembered, found)
    if judgement.verdict is StoreVerdict.OURS:
        reports = await read_restore_reports(one, region)
        if not reports:
            raise click.ClickException(f"nothing to adopt: {judgement.sentence}; {reports.sentence}")
        click.echo(reports.sentence, err=True)
    elif judgement.verdict is not StoreVerdict.RESTORED:
        raise click.ClickException(f"nothing to adopt: {judgement.sentence}")
    if remembered.mark:
        raise click.ClickException(
            "this fleet has an inventory, from which its leader refills the store first: run this on the leader's "
            "machine (holdfast leader)"
        )
    return await raise_epoch(one, region, found, remembered, who=this_user(), why=reason, dry_run=dry_run)
