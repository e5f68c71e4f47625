"""`holdfast drain host` and `undrain host`: take the backends on a host out of every balancer, and wait for their
flows. Routes to the host stay."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from holdfast.cli.change.intents import any_server, reason_flag, within_flag
from holdfast.cli.common.completion import complete_name
from holdfast.cli.common.control_socket import CannotTell, request_change, runtime_flag, send_store_query
from holdfast.cli.common.format import counted

_POLL_S = 1.0

_kind = click.argument("kind", type=click.Choice(["host"]), metavar="KIND")


@click.command()
@_kind
@click.argument("name", shell_complete=complete_name)
@click.option("--wait", is_flag=True, help="Return when the flows to the host are gone.")
@within_flag
@reason_flag
@runtime_flag
def drain(kind: str, name: str, wait: bool, within: str | None, reason: str, runtime: Path) -> None:
    """Drain host NAME: every balancer pauses the backends on it. They get no new flows; established ones continue, and
    routes stay.

    `holdfast apply` and `move` put no new endpoint there meanwhile. Exits with 3 where --wait cannot tell, because a
    balancer does not count flows.
    """
    server = any_server(runtime)
    within_args = {"for": within} if within else {}
    click.echo(request_change(runtime, server, f"drain-{kind}", name=name, reason=reason, **within_args), err=True)
    if wait:
        _wait(runtime, server, name)


@click.command()
@_kind
@click.argument("name", shell_complete=complete_name)
@runtime_flag
def undrain(kind: str, name: str, runtime: Path) -> None:
    """End the drain of host NAME: its backends are probed, and serve once they are healthy."""
    click.echo(request_change(runtime, any_server(runtime), f"undrain-{kind}", name=name), err=True)


def _wait(runtime: Path, server: str, host: str) -> None:
    told = ""
    while True:
        seen = next((one for one in send_store_query(runtime, server, "drains") if one["host"] == host), None)
        if seen is None:
            raise click.ClickException(f"the drain of host {host} ended before its flows did")
        left = flows_left(seen)
        if not left:
            break
        if left != told:
            click.echo(f"waiting: {left}", err=True)
        told = left
        time.sleep(_POLL_S)
    uncounted = sorted(name for name, flows in seen["flows"].items() if flows is None)
    if uncounted:
        raise CannotTell(
            f"{', '.join(uncounted)} does not count flows: wait for as long as your longest request; "
            "no other balancer has a flow to the host"
        )
    click.echo(f"no balancer has a flow to host {host}", err=True)


def flows_left(drain: dict[str, Any]) -> str:
    """Describe the flows that are left, and the balancers that have not counted them yet; empty when none is. Pure."""
    left = [f"{counted(flows, 'flow')} at {name}" for name, flows in sorted(drain["flows"].items()) if flows]
    return ", ".join([*left, *(f"{name} has not counted yet" for name in drain["waiting"])])
