"""`holdfast store adopt`: an operator has looked at a restored store and says that it is ours again."""

from __future__ import annotations

import click

from holdfast.cli.direct import Reach, state_folder, store_flags
from holdfast.model.identity import Identity
from holdfast.runtime.memory import StoreMemory
from holdfast.store.api import Store
from holdfast.store.identity import Verdict, judge, raise_epoch, read_identity


@click.group()
def store() -> None:
    """The etcd that everything is kept in."""


@store.command()
@click.option("--reason", required=True, help="Why it is right to go on with this store.")
@store_flags
def adopt(reason: str, **given: str | None) -> None:
    """Go on with a store that was restored from a backup: raises its epoch, which reopens deletes everywhere."""
    reach = Reach(given)
    memory = StoreMemory(state_folder(reach), "server")
    identity = reach.ask(lambda one: _adopt(one, reach, memory))
    click.echo(f"fleet {identity.fleet} goes on with epoch {identity.epoch}: “{reason}”", err=True)


async def _adopt(one: Store, reach: Reach, memory: StoreMemory) -> Identity:
    remembered = memory.recall()
    if remembered is None:
        raise click.ClickException(f"nothing is remembered in {state_folder(reach)}: run this on a server of the fleet")
    found = await read_identity(one, reach.region)
    said = judge(remembered, found)
    if said.verdict is not Verdict.RESTORED:
        raise click.ClickException(f"there is nothing to adopt: {said.sentence}")
    identity = await raise_epoch(one, reach.region, found, remembered)
    memory.keep(remembered.seen(identity, found.revision))
    return identity
