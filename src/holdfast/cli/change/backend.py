"""`holdfast backend`: take a backend out of service, or put it back, for a reason that is kept."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.change.intents import reason, within
from holdfast.cli.common.control_socket import runtime_flag, tell
from holdfast.cli.daemons.balancer import WORKER


@click.group()
def backend() -> None:
    """Pause, resume, disable, enable or weigh a backend. Kept over restarts and reloads."""


def _ask(runtime: Path, do: str, name: str, why: str | None = None, within: str | None = None, **more: object) -> None:
    given = {"reason": why, "for": within, **more}
    said = tell(runtime, WORKER, "backend", do=do, name=name, **{k: v for k, v in given.items() if v is not None})
    click.echo(said, err=True)


@backend.command()
@click.argument("name")
@within
@reason
@runtime_flag
def pause(name: str, within: str | None, reason: str, runtime: Path) -> None:
    """Give NAME no new flows; its established ones go on."""
    _ask(runtime, "pause", name, reason, within)


@backend.command()
@click.argument("name")
@runtime_flag
def resume(name: str, runtime: Path) -> None:
    """End a pause of NAME: it is probed, and serves when it passes."""
    _ask(runtime, "resume", name)


@backend.command()
@click.argument("name")
@within
@reason
@runtime_flag
def disable(name: str, within: str | None, reason: str, runtime: Path) -> None:
    """Give NAME no new flows, and end its established ones."""
    _ask(runtime, "disable", name, reason, within)


@backend.command()
@click.argument("name")
@runtime_flag
def enable(name: str, runtime: Path) -> None:
    """End what disable began: NAME is probed, and serves when it passes."""
    _ask(runtime, "enable", name)


@backend.command()
@click.argument("name")
@click.argument("weight", type=click.IntRange(0, 100), required=False)
@click.option("--reset", is_flag=True, help="Go back to the configured weight.")
@within
@click.option("--reason", "why", help="Why; it is kept with your name.")
@runtime_flag
def weight(name: str, weight: int | None, reset: bool, within: str | None, why: str | None, runtime: Path) -> None:
    """Give NAME this weight (0 to 100) wherever it serves, whatever the configuration says."""
    if reset == (weight is not None):
        raise click.UsageError("say either a WEIGHT from 0 to 100, or --reset.")
    if not reset and not why:
        raise click.UsageError("a weight needs --reason: it is kept with your name.")
    _ask(runtime, "weight", name, why, within, weight=weight)
