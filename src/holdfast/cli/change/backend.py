"""`holdfast disable backend`, `enable backend` and `weight backend | pool`: take a backend out of service, put it back,
or give it or a whole pool another share, with a recorded reason. `holdfast pause backend` is one of the pauses."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.change.intents import reason_flag, within_flag
from holdfast.cli.common.completion import complete_name
from holdfast.cli.common.control_socket import request_change, runtime_flag
from holdfast.cli.daemons.balancer import WORKER

_kind = click.argument("kind", type=click.Choice(["backend"]), metavar="KIND")


def _ask(runtime: Path, action: str, kind: str, name: str, **given: object) -> None:
    args = {key: value for key, value in given.items() if value is not None}
    click.echo(request_change(runtime, WORKER, kind, do=action, name=name, **args), err=True)


@click.command()
@_kind
@click.argument("name", shell_complete=complete_name)
@within_flag
@reason_flag
@runtime_flag
def disable(kind: str, name: str, within: str | None, reason: str, runtime: Path) -> None:
    """Take backend NAME out: it gets no new flows, and established ones are ended. Survives restarts and reloads."""
    _ask(runtime, "disable", kind, name, reason=reason, **{"for": within})


@click.command()
@_kind
@click.argument("name", shell_complete=complete_name)
@runtime_flag
def enable(kind: str, name: str, runtime: Path) -> None:
    """End `disable`: backend NAME is probed, and serves once it is healthy."""
    _ask(runtime, "enable", kind, name)


@click.command()
@click.argument("kind", type=click.Choice(["backend", "pool"]), metavar="KIND")
@click.argument("name", shell_complete=complete_name)
@click.argument("weight", type=click.IntRange(0, 100), required=False)
@click.option("--frontend", metavar="NAME", help="Only in the pools of this frontend; needed for a pool.")
@click.option("--reset", is_flag=True, help="Return to the configured weight.")
@within_flag
@click.option("--reason", help="Why; recorded with your name.")
@runtime_flag
def weight(
    kind: str,
    name: str,
    weight: int | None,
    frontend: str | None,
    reset: bool,
    within: str | None,
    reason: str | None,
    runtime: Path,
) -> None:
    """Override the weight (0 to 100) of backend NAME, or of each backend in pool NAME (or number) of a frontend.

    That of a backend in one frontend goes before that of its pool, which goes before that of the backend everywhere.
    With 0 a pool gets no new flows and the next one serves; established flows continue.
    """
    if kind == "pool" and frontend is None:
        raise click.UsageError("a pool is one of a frontend: give --frontend NAME.")
    if reset == (weight is not None):
        raise click.UsageError("give either a WEIGHT from 0 to 100, or --reset.")
    if not reset and not reason:
        raise click.UsageError("a weight needs --reason; it is recorded with your name.")
    _ask(runtime, "weight", kind, name, reason=reason, weight=weight, frontend=frontend, **{"for": within})
