"""`holdfast store adopt`: accept a store that was restored from a backup."""

from __future__ import annotations

import click

from holdfast.cli.common.etcd import EtcdOptions, operator, store_flags
from holdfast.model.base.region import Region
from holdfast.model.control.identity import Identity
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.store.api import Store
from holdfast.store.identity import SeenStore, StoreVerdict, classify_store, raise_epoch, read_identity


@click.group()
def store() -> None:
    """Accept a store that was restored from a backup."""


@store.command()
@click.option("--reason", required=True, help="Why this store is the right one; recorded with your name.")
@store_flags
def adopt(reason: str, **given: str | None) -> None:
    """Accept a store that was restored from a backup. Raises its epoch, which releases deletes in the whole fleet."""
    options = EtcdOptions(given)
    remembered = _remembered(options)
    identity = options.query(lambda one: _adopt(one, options.region, remembered, reason))
    click.echo(f"fleet {identity.fleet} continues with epoch {identity.epoch}: “{reason}”", err=True)


def _remembered(options: EtcdOptions) -> SeenStore:
    try:
        remembered = StoreMemory(options.state_folder, "server").load()
    except MemoryUnreadable as unreadable:
        raise click.ClickException(str(unreadable)) from unreadable
    if remembered is None:
        raise click.ClickException(
            f"no store identity is recorded in {options.state_folder}: run this on a server of the fleet"
        )
    return remembered


async def _adopt(one: Store, region: Region, remembered: SeenStore, reason: str) -> Identity:
    """Write the higher epoch to the store only: every daemon learns it when it reads the identity next."""
    found = await read_identity(one, region)
    judgement = classify_store(remembered, found)
    if judgement.verdict is not StoreVerdict.RESTORED:
        raise click.ClickException(f"nothing to adopt: {judgement.sentence}")
    return await raise_epoch(one, region, found, remembered, who=operator(), why=reason)
