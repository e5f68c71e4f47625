"""Configuration of a command: the flags that every command takes, and the exit codes for a bad configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from holdfast.cli.common.api_files import api_unusable
from holdfast.cli.common.control_socket import CANNOT_TELL
from holdfast.config import ConfigRejected, FlagValue, Loaded, resolve
from holdfast.runtime.config_file import load

INVALID = 1
UNREADABLE = CANNOT_TELL
"""A file that cannot be read may be valid."""

F = TypeVar("F", bound=Callable[..., Any])


def configuration_flags(command: F) -> F:
    """Add `--config FILE` and `--set SECTION.FIELD=VALUE`; they arrive as `config_file` and `settings`."""
    chosen = click.option("--config", "config_file", metavar="FILE", help="Configuration file.")
    return chosen(settings_flag(command))


def http_flag(command: F) -> F:
    """Add `--http ADDR`; it arrives as `http`, settings to add to the others."""
    return click.option(
        "--http",
        metavar="ADDR",
        callback=lambda _context, _parameter, given: (FlagValue("--http", "http.address", given),) if given else (),
        help="Serve /metrics on IP:PORT instead of the loopback port of the role; off for none.",
    )(command)


def settings_flag(command: F) -> F:
    """Add `--set SECTION.FIELD=VALUE` alone; it arrives as `settings`."""
    return click.option(
        "--set",
        "settings",
        metavar="SECTION.FIELD=VALUE",
        multiple=True,
        callback=_flags,
        help="Set one field; overrides environment and file. Can be repeated.",
    )(command)


def _flags(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> tuple[FlagValue, ...]:
    return tuple(_flag(text) for text in given)


def _flag(text: str) -> FlagValue:
    path, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{path!r} has no value: write --set SECTION.FIELD=VALUE, such as log.level=debug")
    return FlagValue(f"--set {path}", path, value)


def effective(config_file: str | None, settings: Sequence[FlagValue] = ()) -> Loaded:
    """Load the configuration. If it is bad, print every error and end the command."""
    loaded = load(config_file, os.environ, settings)
    if isinstance(loaded, ConfigRejected):
        raise _ended(loaded)
    return loaded


def effective_or_defaults(
    config_file: str | None, settings: Sequence[FlagValue] = ()
) -> tuple[Loaded, ConfigRejected | None]:
    """Load the configuration; a bad one is returned beside the defaults: it must not stop a diagnosis."""
    loaded = load(config_file, os.environ, settings)
    if not isinstance(loaded, ConfigRejected):
        return loaded, None
    defaults = resolve(None, {}, settings)
    if isinstance(defaults, ConfigRejected):  # it is a flag that is bad
        raise _ended(defaults)
    return defaults, loaded


def startable(config_file: str | None, settings: Sequence[FlagValue] = ()) -> Loaded:
    """Load the configuration, and check that its API can be served: certificate, and tokens off loopback."""
    loaded = effective(config_file, settings)
    if (refused := api_unusable(loaded)) is not None:
        raise _ended(refused)
    return loaded


def checked(config_file: str | None, settings: Sequence[FlagValue] = ()) -> Loaded:
    """Load the configuration, check also what depends on this machine and on the dataplane, and print warnings."""
    loaded = startable(config_file, settings)
    if (refused := unusable(loaded)) is not None:
        raise _ended(refused)
    print_warnings(loaded)
    return loaded


def print_warnings(loaded: Loaded) -> None:
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)


def unusable(loaded: Loaded) -> ConfigRejected | None:
    """Refuse a configuration whose health checks name files that this process cannot use, or whose services the
    dataplane cannot hold."""
    from holdfast.balancer.dataplane.open import canonical_form
    from holdfast.balancer.probing import files
    from holdfast.balancer.services.distinct import indistinct

    balancer = loaded.config.balancer
    return files.unusable(loaded) or (
        indistinct(loaded, canonical_form(balancer.dataplane)) if balancer.frontends else None
    )


def _ended(refused: ConfigRejected) -> click.exceptions.Exit:
    click.echo(str(refused), err=True)
    return click.exceptions.Exit(UNREADABLE if refused.unreadable else INVALID)
