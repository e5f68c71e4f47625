"""`holdfast config`: check the configuration, and show what is in effect and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from holdfast.cli.common.config_flags import configuration_flags, effective
from holdfast.config import FlagValue, Loaded
from holdfast.config.output.show import as_json, as_table, as_yaml
from holdfast.runtime.config_file import DEFAULT_FILE

_FORMATS: dict[str, Callable[..., str]] = {"table": as_table, "yaml": as_yaml, "json": as_json}


@click.group()
def config() -> None:
    """Check and show the configuration."""


@config.command()
@click.argument("file", required=False)
@configuration_flags
def check(file: str | None, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Check FILE, or the file that a daemon would read, together with the environment.

    Prints every error. Exits with 0 if the configuration is valid, 1 if the file cannot be read, 2 if it is invalid.
    """
    if file and config_file:
        raise click.UsageError("The file is given twice: leave out --config or FILE.")
    loaded = effective(file or config_file, settings)
    click.echo(_verdict(loaded), err=True)


def _verdict(loaded: Loaded) -> str:
    if loaded.file is None:
        return f"{DEFAULT_FILE} does not exist; the configuration without it is valid."
    return f"{loaded.file} is valid."


@config.command()
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("-o", "--output", type=click.Choice(list(_FORMATS)), default="table", help="Output format.")
@configuration_flags
def show(origin: bool, output: str, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Show the configuration in effect."""
    loaded = effective(config_file, settings)
    click.echo(_FORMATS[output](loaded, origin=origin), nl=False)
