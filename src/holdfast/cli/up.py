"""`holdfast up`: a small fleet on this machine, on a dataplane in memory. Ctrl-C stops everything it started."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.daemon import LAB_FOLDER
from holdfast.cli.run import run_role
from holdfast.config import Flag
from holdfast.lab import demo
from holdfast.runtime.paths import Paths

ROLE = "lab"


@click.command()
@click.option("--dir", "folder", default=str(LAB_FOLDER), help="Where it keeps its files.", show_default=True)
@click.option("--config", "config_file", metavar="FILE", help="Configuration file.")
def up(folder: str, config_file: str | None) -> None:
    """Run a small fleet on this machine, without root."""
    base = Path(folder).absolute()
    flags = (
        Flag("--dir", "paths.state", str(base / "state")),
        Flag("--dir", "paths.runtime", str(base / "run")),
    )
    run_role(ROLE, demo.WORKERS, config_file, flags, ready=_welcome)


def _welcome(paths: Paths) -> None:
    wanted = demo.wanted_file(paths.state)
    click.echo(
        f"""
Holdfast runs. In another terminal:

  holdfast status                  what runs, and how it is
  holdfast history                 what it decided, and why
  kill -9 / kill -STOP a worker    it is replaced; holdfast status tells
  edit {wanted}
                                   routes follow; drop more than half, and the brake holds them:
  holdfast plan routes             what is held, and what opens it

Ctrl-C stops everything.
""",
        err=True,
    )
