"""`holdfast store adopt`: an operator has looked at a restored store and says that it is ours again."""

from __future__ import annotations

import click

from holdfast.cli.common.etcd import EtcdOptions, state_folder, store_flags, who
from holdfast.model.base.region import Region
from holdfast.model.control.identity import Identity
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.store.api import Store
from holdfast.store.identity import SeenStore, StoreVerdict, judge, raise_epoch, read_identity


@click.group()
def store() -> None:
    """The etcd that everything is kept in."""


@store.command()
@click.option("--reason", required=True, help="Why it is right to go on with this store.")
@store_flags
def adopt(reason: str, **given: str | None) -> None:
    """Go on with a store that was restored from a backup: raises its epoch, which reopens deletes everywhere."""
    reach = EtcdOptions(given)
    remembered = _recalled(reach)
    identity = reach.ask(lambda one: _adopt(one, reach.region, remembered, reason))
    click.echo(f"fleet {identity.fleet} goes on with epoch {identity.epoch}: “{reason}”", err=True)


def _recalled(reach: EtcdOptions) -> SeenStore:
    try:
        remembered = StoreMemory(state_folder(reach), "server").recall()
    except MemoryUnreadable as unreadable:
        raise click.ClickException(str(unreadable)) from unreadable
    if remembered is None:
        raise click.ClickException(f"nothing is remembered in {state_folder(reach)}: run this on a server of the fleet")
    return remembered


async def _adopt(one: Store, region: Region, remembered: SeenStore, reason: str) -> Identity:
    """Only the store is written: every daemon takes the higher epoch into its own memory when it looks next."""
    found = await read_identity(one, region)
    said = judge(remembered, found)
    if said.verdict is not StoreVerdict.RESTORED:
        raise click.ClickException(f"there is nothing to adopt: {said.sentence}")
    return await raise_epoch(one, region, found, remembered, who=who(), why=reason)
