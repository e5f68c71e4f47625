"""`holdfast get`: objects of the inventory, or the servers of the fleet.

The inventory's part is imported only when it is used: hosts without a database have no SQL installed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from holdfast.cli.common.config_flags import settings_flag
from holdfast.cli.common.control_socket import CannotTell, no_daemon, roles, runtime_folder
from holdfast.cli.common.etcd import EtcdOptions, store_flags
from holdfast.cli.common.format import objects_output_flag, short
from holdfast.cli.common.terms import last_known, stale_term
from holdfast.config import FlagValue
from holdfast.runtime.control import Request, ask
from holdfast.store.servers import ServerSeen, read_servers

SERVERS = ("server", "servers")


@click.command()
@click.argument("kind")
@click.argument("name", required=False)
@click.option("--network", help="Only endpoints of this network.")
@objects_output_flag
@settings_flag
@click.option("--runtime", metavar="DIR", help="With `servers`: runtime folder of the daemon to ask.")
@store_flags
def get(
    kind: str,
    name: str | None,
    network: str | None,
    output: str,
    settings: Sequence[FlagValue],
    runtime: str | None,
    **given: str | None,
) -> None:
    """Show the objects of a KIND in the inventory, or one by NAME; or the `servers`.

    The servers are read through any daemon of this machine; with --endpoints, or without a daemon, from etcd.
    """
    if kind not in SERVERS:
        from holdfast.cli.change.inventory import show_objects

        show_objects(kind, name, network, output, given.get("config"), settings)
        return
    servers = [one for one in _servers(runtime, given) if name in (None, one.name)]
    if name is not None and not servers:
        raise click.ClickException(f"no server {name} is registered")
    if output == "yaml":
        raise click.UsageError("-o yaml is for objects that apply takes: servers register themselves")
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(servers), indent=2))
    else:
        click.echo("\n".join(render(servers)))


def _servers(runtime: str | None, given: dict[str, str | None]) -> list[ServerSeen]:
    options = EtcdOptions(dict(given))
    if given.get("endpoints") is None:
        folder = runtime_folder(runtime)
        try:
            if roles(folder):
                return read_servers_here(folder)
        except CannotTell:
            if not options.is_named:
                raise
    return options.query(lambda store: read_servers(store, options.region))


def read_servers_here(runtime: Path) -> list[ServerSeen]:
    """Return the servers, as the first daemon here that answers reads them from its store."""
    errors: list[str] = []
    for role in roles(runtime):
        answer = asyncio.run(ask(runtime / f"{role}.sock", Request("servers")))
        if not answer.error:
            return msgspec.convert(answer.result, list[ServerSeen])
        errors.append(answer.error)
    if not errors:
        raise no_daemon(runtime)
    raise CannotTell("; ".join([*dict.fromkeys(errors), *last_known(runtime)]))


def render(servers: Sequence[ServerSeen]) -> list[str]:
    """Render the table. Pure."""
    if not servers:
        return ["no server is registered"]
    width = max(6, *(len(one.name) for one in servers)) + 2
    lines = [f"{'SERVER':<{width}}{'ROLE':<10}{'TERM':>10}  {'VERSION':<12}{'LAG':>7}  CAN LEAD"]
    for one in servers:
        term = str(one.term) if one.term else "–"
        can = "yes" if one.able else f"no: {one.why_not}"
        lines.append(f"{one.name:<{width}}{one.role:<10}{term:>10}  {one.version:<12}{short(one.lag_s):>7}  {can}")
        if one.unrenewed_s:
            lines.append(f"{'':<{width}}{stale_term(one.term, one.unrenewed_s)}")
        lines += [f"{'':<{width}}paused: {pause}" for pause in one.pauses]
    return lines
