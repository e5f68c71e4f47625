"""`holdfast explain KIND NAME`: asks every daemon here that knows the object, and prints what they answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import runtime_flag
from holdfast.cli.common.format import output_flag
from holdfast.cli.explain import balancer, host, inventory, route, server
from holdfast.cli.status import observed

KINDS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "backend": balancer.backend,
    "flow": balancer.flow,
    "frontend": balancer.frontend,
    "host": host.lines,
    "route": route.lines,
    "server": server.lines,
    **dict.fromkeys(("endpoint", "migration", "network", "policy", "subnet", "health-check"), inventory.lines),
}


def query(kind: str, name: str, to: str | None, seen_from: str | None, runtime: Path) -> dict[str, Any]:
    """Return what `-o json` prints."""
    if kind == "flow":
        found = balancer.query_flow(runtime, name, to)
    elif kind == "server":
        found = server.query(runtime, name)
    elif kind == "route":
        found = route.query(runtime, name, seen_from)
    elif kind == "host":
        found = host.query(runtime, name, seen_from)
    elif kind in ("backend", "frontend"):
        found = balancer.query(runtime, kind, name)
    else:
        found = inventory.query(runtime, kind, name)
    if kind in ("backend", "frontend", "host"):
        found["inventory"] = inventory.query_if_known(runtime, kind, name)
    if kind in ("endpoint", "host"):
        found["observed"] = observed.query_if_known(runtime, kind, name)
    if kind == "endpoint":
        found["agents"] = host.query_endpoint(runtime, name)
    return found


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)), metavar="KIND")
@click.argument("name")
@click.argument("to", required=False)
@output_flag
@click.option("--host", "seen_from", help="For a host or route: ask the agent of this host, where several run.")
@runtime_flag
def explain(kind: str, name: str, to: str | None, output: str, seen_from: str | None, runtime: Path) -> None:
    """Explain the state of one object: what is wanted, what is programmed, and what is between them.

    KIND is backend, endpoint, flow, frontend, health-check, host, migration, network, policy, route, server or subnet.
    For a flow, NAME is its source (ADDRESS:PORT) and TO the VIP: an address and port, or a frontend. In OpenStack, NAME
    may be the id of a port, security group or subnet.
    """
    if to is not None and kind != "flow":
        raise click.UsageError(f"unexpected argument {to!r}: only a flow takes TO")
    found = query(kind, name, to, seen_from, runtime)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
        return
    for line in KINDS[kind](found):
        click.echo(line)
    for line in (*observed.explain_lines(found.get("observed", [])), *host.endpoint_lines(found.get("agents", []))):
        click.echo(line)
    if found.get("inventory"):
        click.echo()
        for line in inventory.lines(found["inventory"]):
            click.echo(line)
