"""`holdfast agent --dry-run`: print what the agent of this host would change now. It may run next to an agent."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from holdfast.agent.claims import Claim
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.dataplane.open import open_dataplane
from holdfast.agent.dry_run import DryRunPlan, dry_run
from holdfast.agent.journal.journal import JournalUnreadable
from holdfast.agent.tunnels import OwnTunnels
from holdfast.cli.common.config_flags import effective
from holdfast.config import Config, FlagValue
from holdfast.reconcile import Away
from holdfast.runtime.intents.store import IntentsUnreadable
from holdfast.runtime.log import setup_logging
from holdfast.runtime.store_client import open_store
from holdfast.store.api import StoreError
from holdfast.store.host_keys import HostNameRefused


def print_plan(config_file: str | None, settings: Sequence[FlagValue]) -> None:
    config = effective(config_file, settings).config
    setup_logging(msgspec.structs.replace(config.log, level="error"), role="agent", worker="dry-run")
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-dry-run-") as folder:
            found = asyncio.run(_plan(config, Path(folder)))
    except (Away, StoreError, JournalUnreadable, IntentsUnreadable, HostNameRefused) as error:
        raise click.ClickException(str(error)) from error
    if found is None:
        raise click.ClickException("the store has not delivered a complete list: check it with holdfast doctor")
    for line in lines(found):
        click.echo(line)
    if not found.changes and not found.held:
        click.echo("no changes", err=True)


async def _plan(config: Config, folder: Path) -> DryRunPlan | None:
    store, tunnels = open_store(config.store), OwnTunnels()
    try:
        real = open_dataplane(config.agent, tunnels.underlay, Path(config.paths.runtime))
        return await dry_run(config, store, real, folder, tunnels)
    finally:
        await store.close()


def lines(found: DryRunPlan) -> Iterator[str]:
    """Render the plan. Pure."""
    for change in found.changes:
        yield f"{change.op.name.lower():<8} {change.key!s:<40} {_owner(change)}"
    for one in found.held:
        yield f"held     {one.op} {one.key}: {one.reason}. To release: {one.opens}"


def _owner(change: ClaimChange) -> str:
    claim: Claim = change.owner.value
    endpoint = f", endpoint {claim.owner.endpoint}" if claim.owner.endpoint else ""
    return f"of {claim.owner.host}{endpoint}" if claim.owner else "owner unknown"
