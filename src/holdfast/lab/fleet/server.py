"""One server of a lab or a chaos test: all that `holdfast server` runs, and the writer beside it.

    python -m holdfast.lab.fleet.server server.name=s1 store.endpoints=http://127.0.0.1:2379 paths.state=…

It is configured by `SECTION.FIELD=VALUE` as `holdfast server --set` is, and says in one sentence when it cannot run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.config import Config, ConfigRejected, FlagValue
from holdfast.lab.fleet.fenced_writer import WRITER
from holdfast.runtime import log as logging
from holdfast.runtime.config_file import load
from holdfast.runtime.daemon.process import AlreadyRunning, die_with
from holdfast.runtime.daemon.supervisor import Supervisor
from holdfast.runtime.daemon.worker import Spec
from holdfast.runtime.paths import FolderError, RolePaths
from holdfast.server.workers import WORKERS, cells

ROLE = "server"
DIE_WITH = "--die-with="
"""Before the settings: the process that this one must not outlive."""


def command(settings: Sequence[str], *, module: str = "holdfast.lab.fleet.server") -> Sequence[str]:
    """The command line that starts such a server."""
    return [sys.executable, "-m", module, *settings]


def run_member(
    settings: Sequence[str],
    workers: Sequence[Spec],
    *,
    role: str = ROLE,
    file: str | None = None,
    board: Sequence[str] | None = None,
) -> int:
    """Runs until told to stop. `board` names the cells besides the pulses; a server's, if not said. Returns the exit
    code."""
    flags = [FlagValue(field, field, value) for field, _, value in (one.partition("=") for one in settings)]

    def read() -> Config | str:
        loaded = load(file, os.environ, flags)
        return str(loaded) if isinstance(loaded, ConfigRejected) else loaded.config

    config = read()
    if isinstance(config, str):
        sys.stderr.write(f"{config}\n")
        return 2
    logging.setup(config.log, role=role, worker="supervisor")
    paths = RolePaths(role, Path(config.paths.runtime), Path(config.paths.state))
    shown = cells(workers) if board is None else board
    try:
        return asyncio.run(Supervisor(role, workers, config, paths, reload=read, cells=shown).run())
    except (AlreadyRunning, FolderError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def tied(arguments: Sequence[str]) -> Sequence[str] | None:
    """Ties this process to the one that it must not outlive, if one is named; the rest of the arguments. None: that one
    is gone already."""
    parents = [int(one.removeprefix(DIE_WITH)) for one in arguments if one.startswith(DIE_WITH)]
    if any(not die_with(parent) for parent in parents):
        return None
    return [one for one in arguments if not one.startswith(DIE_WITH)]


def main(arguments: Sequence[str]) -> int:
    settings = tied(arguments)
    return 1 if settings is None else run_member(settings, (*WORKERS, WRITER))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
