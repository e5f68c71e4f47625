"""Intents of operators: what the workers here obey, and the drains of hosts, which a server reads from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from holdfast.cli.common.control_socket import electors, send_store_query
from holdfast.cli.status.view import read_status
from holdfast.model.control.intent import Intent


def all_intents(runtime: Path) -> list[Intent]:
    """Return what operators asked for: what the workers here obey, and the drains of hosts."""
    return [*asyncio.run(read_status(runtime)).intents, *_drains(runtime)]


def _drains(runtime: Path) -> Iterator[Intent]:
    """Drains of hosts, which balancers obey and any server can read."""
    try:
        server = next(iter(electors(runtime)), None)
        drains = [] if server is None else send_store_query(runtime, server, "drains")
    except click.ClickException as error:
        click.echo(f"drained hosts are not known: {error.message}", err=True)
        return
    yield from (msgspec.convert(one["intent"], Intent) for one in drains)
