"""Daemons of the lab: each one a process tree of its own, configured by `SECTION.FIELD=VALUE` arguments.

A worker of the lab starts a daemon with `run_child`; the daemon's `main` is `run_daemon`. The daemon dies with the
worker that started it (`--die-with`), however that worker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.config import Config, ConfigRejected, FlagValue
from holdfast.runtime.config_file import load
from holdfast.runtime.daemon.process import AlreadyRunning, die_with
from holdfast.runtime.daemon.supervisor import Supervisor
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.log import setup_logging
from holdfast.runtime.paths import FolderError, RolePaths

DIE_WITH = "--die-with="
"""Argument that names the process which the daemon must not outlive."""


def command(module: str, arguments: Sequence[str]) -> Sequence[str]:
    """Return the command line that starts that module's daemon."""
    return [sys.executable, "-m", module, *arguments]


async def run_child(worker: Worker, command: Sequence[str]) -> int | None:
    """Run a command until it exits, and return its exit code; None if the worker was told to stop first."""
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    ended, stopping = asyncio.create_task(process.wait()), asyncio.create_task(worker.stopping.wait())
    try:
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return None if worker.stopping.is_set() else process.returncode
    finally:
        stopping.cancel()
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await ended


def bind_to_parent(arguments: Sequence[str]) -> Sequence[str] | None:
    """Apply and strip `--die-with`. Returns the other arguments; None if that parent is gone already."""
    parents = [int(one.removeprefix(DIE_WITH)) for one in arguments if one.startswith(DIE_WITH)]
    if any(not die_with(parent) for parent in parents):
        return None
    return [one for one in arguments if not one.startswith(DIE_WITH)]


def run_daemon(
    role: str, settings: Sequence[str], workers: Sequence[Spec], *, cells: Sequence[str] = (), file: str | None = None
) -> int:
    """Run a supervisor until it is stopped, and return the exit code."""
    flags = [FlagValue(field, field, value) for field, _, value in (one.partition("=") for one in settings)]

    def read() -> Config | str:
        loaded = load(file, os.environ, flags)
        return str(loaded) if isinstance(loaded, ConfigRejected) else loaded.config

    config = read()
    if isinstance(config, str):
        sys.stderr.write(f"{config}\n")
        return 1
    setup_logging(config.log, role=role, worker="supervisor")
    paths = RolePaths(role, Path(config.paths.runtime), Path(config.paths.state))
    try:
        return asyncio.run(Supervisor(role, workers, config, paths, reload=read, cells=cells).run())
    except (AlreadyRunning, FolderError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
