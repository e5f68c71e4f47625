"""`holdfast server`: run one server of the fleet."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.common.config_flags import configuration_flags, http_flag
from holdfast.cli.daemons.run import run_role
from holdfast.config import FlagValue
from holdfast.server.workers import WORKERS, cells


@click.command()
@configuration_flags
@http_flag
def server(config_file: str | None, settings: Sequence[FlagValue], http: Sequence[FlagValue]) -> None:
    """Run one server of the fleet. Any number can run; one of them leads."""
    run_role("server", WORKERS, config_file, (*settings, *http), cells=cells(WORKERS))
