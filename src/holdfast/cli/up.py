"""`holdfast up`: a small fleet on this machine, on a dataplane in memory. Ctrl-C stops everything it started."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from holdfast.cli.configuration import effective
from holdfast.cli.daemon import LAB_FOLDER
from holdfast.config import Config, Flag, Rejected
from holdfast.lab import demo
from holdfast.runtime import log as logging
from holdfast.runtime.configuration import load
from holdfast.runtime.paths import FolderError, Paths
from holdfast.runtime.process import AlreadyRunning
from holdfast.runtime.supervisor import Supervisor

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
    config = effective(config_file, flags).config

    def reload() -> Config | str:
        loaded = load(config_file, os.environ, flags)
        return str(loaded) if isinstance(loaded, Rejected) else loaded.config

    logging.setup(config.log, role=ROLE, worker="supervisor")
    paths = Paths(ROLE, base / "run", base / "state")
    supervisor = Supervisor(ROLE, demo.WORKERS, config, paths, reload=reload, ready=lambda: _welcome(paths))
    try:
        code = asyncio.run(supervisor.run())
    except (AlreadyRunning, FolderError) as error:
        raise click.ClickException(str(error)) from error
    raise click.exceptions.Exit(code)


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
