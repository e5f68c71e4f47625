"""Entry of every daemon: load the configuration and run the role's supervisor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click

from holdfast.cli.common.config_flags import print_warnings, startable
from holdfast.config import Config, ConfigRejected, FlagValue, Loaded
from holdfast.runtime.config_file import FileChanges, load
from holdfast.runtime.daemon.process import AlreadyRunning
from holdfast.runtime.daemon.supervisor import Supervisor
from holdfast.runtime.daemon.worker import Spec
from holdfast.runtime.log import setup_logging
from holdfast.runtime.paths import FolderError, RolePaths

API = Spec("api", "holdfast.cli.api.worker:run")


def _require_api() -> None:
    if find_spec("litestar") is None or find_spec("uvicorn") is None:
        raise click.ClickException("http.api needs packages that are missing: install holdfast[api], or set it to off")


def run_role(
    role: str,
    workers: Sequence[Spec],
    config_file: str | None,
    flags: Sequence[FlagValue],
    *,
    cells: Sequence[str] = (),
    ready: Callable[[RolePaths], None] = lambda _paths: None,
    unusable: Callable[[Loaded], ConfigRejected | None] = lambda _loaded: None,
) -> NoReturn:
    """Run until stopped, then end the command with the supervisor's exit code. `unusable` may refuse a reload."""
    loaded = startable(config_file, flags)
    print_warnings(loaded)
    config = loaded.config

    def reload() -> Config | str:
        loaded = load(config_file, os.environ, flags)
        if isinstance(loaded, ConfigRejected):
            return str(loaded)
        refused = unusable(loaded)
        return loaded.config if refused is None else str(refused)

    if config.http.api_listens_on() is not None:
        _require_api()
        workers = (*workers, API)
    changes = FileChanges(config_file, os.environ)
    changed = changes.settled if role == "balancer" and config.balancer.reload_on_change else None
    setup_logging(config.log, role=role, worker="supervisor")
    paths = RolePaths(role, Path(config.paths.runtime), Path(config.paths.state))
    supervisor = Supervisor(
        role, workers, config, paths, reload=reload, cells=cells, ready=lambda: ready(paths), changed=changed
    )
    try:
        code = asyncio.run(supervisor.run())
    except (AlreadyRunning, FolderError) as error:
        raise click.ClickException(str(error)) from error
    raise click.exceptions.Exit(code)
