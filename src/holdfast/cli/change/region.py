"""`holdfast region retire`: end a region whose objects are gone, so that another one can take its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from holdfast.cli.change.inventory import InventorySession, session
from holdfast.cli.common.config_flags import configuration_flags
from holdfast.config import FlagValue
from holdfast.inventory.edit.regions import retire_region
from holdfast.inventory.kinds import KINDS
from holdfast.model.base.bad import Bad
from holdfast.model.base.keys import own
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER
from holdfast.runtime.caller import this_user
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Aspect, Compare, Delete, Store, prefix_end


@click.group()
def region() -> None:
    """End a region of this inventory."""


@region.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why the region is over; logged with your name.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@configuration_flags
def retire(name: str, reason: str, yes: bool, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """End the region NAME (no-region: the one without a name). Can be repeated if it was interrupted.

    Its servers must be stopped and its objects deleted, first from the inventory and by its leader from the store.
    Deletes what Holdfast itself keeps in etcd for it, and its fence and marks in the inventory.
    """
    with session(config_file, settings) as opened:
        retired = Region.of_segment(name)
        if retired.segment not in opened.inventory.regions():
            raise click.ClickException(f"{retired.segment} is no region of this inventory: nothing to retire")
        _refuse_objects(retired, "inventory", _in_inventory(opened, retired))
        _refuse_objects(retired, "store", opened.query(lambda store: _in_store(store, retired)))
        if not yes:
            click.confirm(f"retire {retired.segment}?", abort=True)
        opened.query(lambda store: _clear(store, retired))
        retire_region(opened.engine, retired)
    click.echo(f"{this_user()} retired {retired.segment}: “{reason}”", err=True)


def _in_inventory(opened: InventorySession, retired: Region) -> Counter[str]:
    layout, snapshot = RegionKeys(retired, KINDS), opened.inventory.snapshot()
    found: Counter[str] = Counter()
    after: bytes | None = None
    try:
        while rows := snapshot.read(after, 10_000):
            found.update(layout.plural(row.key) for row in rows if layout.wants(row.key, row.doc))
            after = rows[-1].key
    finally:
        snapshot.close()
    return found


async def _in_store(store: Store, retired: Region) -> Counter[str]:
    """Count the objects of a region in the store. Raises `click.ClickException` while it has a leader."""
    leader = await store.get(LEADER.key(retired, "leader"))
    if leader is not None:
        found = LEADER.decode(leader.key, leader.value)
        led = "" if isinstance(found, Bad) else f" by {found.name}"
        raise click.ClickException(f"{retired.segment} is led{led}: stop its servers first")
    layout = RegionKeys(retired, KINDS)
    counted: Counter[str] = Counter()
    for kind in KINDS:
        async for page in store.list(kind.prefix(retired)):
            counted.update(kind.plural for entry in page.entries if layout.is_ours(entry))
    return counted


def _refuse_objects(retired: Region, side: str, found: Counter[str]) -> None:
    if found:
        shown = ", ".join(f"{count:,} {plural}" for plural, count in found.items())
        raise click.ClickException(
            f"{retired.segment} still has {shown} in the {side}: delete them with holdfast delete while one of its "
            "servers leads, so that agents and balancers let go of them"
        )


async def _clear(store: Store, retired: Region) -> None:
    """Delete the region's own keys, unless it has a leader by now."""
    prefix = own("")(retired).encode()
    absent = Compare(LEADER.key(retired, "leader"), Aspect.CREATE_REVISION, 0)
    if not (await store.txn([absent], [Delete(prefix, prefix_end(prefix))])).succeeded:
        raise click.ClickException(f"{retired.segment} has a leader by now: stop its servers first")
