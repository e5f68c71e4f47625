"""`holdfast backend`: take a backend out of service or put it back, with a recorded reason."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.change.intents import reason_flag, within_flag
from holdfast.cli.common.control_socket import request_change, runtime_flag
from holdfast.cli.daemons.balancer import WORKER


@click.group()
def backend() -> None:
    """Pause, disable or weight a backend. Survives restarts and reloads."""


def _ask(
    runtime: Path, action: str, name: str, reason: str | None = None, within: str | None = None, **more: object
) -> None:
    given = {"reason": reason, "for": within, **more}
    args = {key: value for key, value in given.items() if value is not None}
    click.echo(request_change(runtime, WORKER, "backend", do=action, name=name, **args), err=True)


@backend.command()
@click.argument("name")
@within_flag
@reason_flag
@runtime_flag
def pause(name: str, within: str | None, reason: str, runtime: Path) -> None:
    """Drain NAME: it gets no new flows, and established ones continue."""
    _ask(runtime, "pause", name, reason, within)


@backend.command()
@click.argument("name")
@runtime_flag
def resume(name: str, runtime: Path) -> None:
    """End a pause: NAME is probed, and serves once it is healthy."""
    _ask(runtime, "resume", name)


@backend.command()
@click.argument("name")
@within_flag
@reason_flag
@runtime_flag
def disable(name: str, within: str | None, reason: str, runtime: Path) -> None:
    """Take NAME out: it gets no new flows, and established ones are ended."""
    _ask(runtime, "disable", name, reason, within)


@backend.command()
@click.argument("name")
@runtime_flag
def enable(name: str, runtime: Path) -> None:
    """End `disable`: NAME is probed, and serves once it is healthy."""
    _ask(runtime, "enable", name)


@backend.command()
@click.argument("name")
@click.argument("weight", type=click.IntRange(0, 100), required=False)
@click.option("--frontend", metavar="NAME", help="Only in the pools of this frontend.")
@click.option("--reset", is_flag=True, help="Return to the configured weight.")
@within_flag
@click.option("--reason", help="Why; recorded with your name.")
@runtime_flag
def weight(
    name: str,
    weight: int | None,
    frontend: str | None,
    reset: bool,
    within: str | None,
    reason: str | None,
    runtime: Path,
) -> None:
    """Override the weight of NAME (0 to 100) in every frontend, or in one, where it has precedence."""
    if reset == (weight is not None):
        raise click.UsageError("give either a WEIGHT from 0 to 100, or --reset.")
    if not reset and not reason:
        raise click.UsageError("a weight needs --reason; it is recorded with your name.")
    _ask(runtime, "weight", name, reason, within, weight=weight, frontend=frontend)
