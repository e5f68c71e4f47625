"""`holdfast get KIND [NAME]`: chooses where a kind is read.

The inventory's part is imported only when it is used: hosts without a database have no SQL installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from holdfast.cli.common.completion import complete_name
from holdfast.cli.common.config_flags import settings_flag
from holdfast.cli.common.control_socket import runtime_folder
from holdfast.cli.common.etcd import store_flags
from holdfast.cli.common.format import DOCUMENTS, objects_output_flag, print_document, watchable
from holdfast.cli.get.listing import Listing
from holdfast.cli.get.running import RUNNING, served_from_file
from holdfast.cli.get.servers import read_all_servers, render
from holdfast.cli.status.observed import show_orphans
from holdfast.config import FlagValue

SERVERS = ("server", "servers")


@click.command()
@click.argument("kind")
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--network", help="Only endpoints of this network.")
@click.option("--orphaned", is_flag=True, help="Only endpoints whose host has no live agent.")
@click.option("--host", help="With `peers` and `routes`: ask the agent of this host, where several run.")
@objects_output_flag
@settings_flag
@click.option("--runtime", metavar="DIR", help="Runtime folder of the daemons to ask.")
@store_flags
@watchable
def get(kind: str, name: str | None, **given: Any) -> None:
    """Show the objects of a KIND, or one by NAME.

    Of the inventory: hosts, networks, subnets, endpoints, frontends, backends, health-checks and migrations, with their
    observed state. Of the daemons: servers, workers, gates, intents, peers and routes; frontends and backends of a
    balancer that serves from a file.

    The servers are read through any daemon of this machine; with --endpoints, or without a daemon, from etcd.
    """
    _show(kind, name, **given)


def _show(
    kind: str,
    name: str | None,
    network: str | None,
    orphaned: bool,
    host: str | None,
    output: str,
    settings: Sequence[FlagValue],
    runtime: str | None,
    **given: str | None,
) -> None:
    chosen = kind if kind in RUNNING else f"{kind}s"
    if orphaned:
        if kind not in ("endpoint", "endpoints"):
            raise click.UsageError("--orphaned is for endpoints.")
        show_orphans(runtime_folder(runtime), output)
    elif kind in SERVERS:
        _show_servers(name, output, runtime, given)
    elif chosen in RUNNING:
        _print(RUNNING[chosen](runtime_folder(runtime), host).of(name), output)
    elif not (settings or given.get("config")) and (served := _served(kind, runtime)) is not None:
        _print(served.of(name), output)
    else:
        from holdfast.cli.get.objects import show_objects

        show_objects(kind, name, network, output, given.get("config"), settings)


def _served(kind: str, runtime: str | None) -> Listing | None:
    """Return what a balancer here serves from a file; None if the inventory is to be asked."""
    one = kind.removesuffix("s")
    return served_from_file(runtime_folder(runtime), one) if one in ("frontend", "backend") else None


def _print(found: Listing, output: str) -> None:
    if output in DOCUMENTS:
        print_document(found.documents, output)
    elif found.rows:
        click.echo(found.render(output))
    else:
        click.echo(found.none, err=True)


def _show_servers(name: str | None, output: str, runtime: str | None, given: dict[str, str | None]) -> None:
    servers = [one for one in read_all_servers(runtime, given) if name in (None, one.name)]
    if name is not None and not servers:
        raise click.ClickException(f"no server {name} is registered")
    if output in DOCUMENTS:
        print_document(msgspec.to_builtins(servers), output)
    elif output == "name":
        click.echo("\n".join(one.name for one in servers))
    else:
        click.echo("\n".join(render(servers)))
