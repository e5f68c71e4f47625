"""`holdfast config`: check the configuration, show what is in effect and where each value comes from, and reload it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from holdfast.cli.common.config_flags import checked, configuration_flags, effective, print_warnings
from holdfast.cli.common.control_socket import answer, label, no_daemon, roles, runtime_flag
from holdfast.cli.common.format import DOCUMENTS, output_flag, print_document
from holdfast.config import FlagValue, Loaded
from holdfast.config.loading.reload import FieldChange, Reload
from holdfast.config.output.show import as_json, as_table, as_yaml
from holdfast.runtime.config_file import DEFAULT_FILE, PARTS
from holdfast.runtime.control import Request

NOT_CONFIRMED = 1

_FORMATS: dict[str, Callable[..., str]] = {"table": as_table, "yaml": as_yaml, "json": as_json}


@click.group()
def config() -> None:
    """Check, show and reload the configuration."""


@config.command(short_help="Check the configuration, with its files.")
@click.argument("file", required=False)
@configuration_flags
def check(file: str | None, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Check FILE, or the file that a daemon would read, together with the environment and the files of health checks.

    Prints every error and warning. Exits with 0 if the configuration is valid, 1 if it is invalid, 3 if the file
    cannot be read.
    """
    if file and config_file:
        raise click.UsageError("The file is given twice: leave out --config or FILE.")
    loaded = checked(file or config_file, settings)
    click.echo(_verdict(loaded), err=True)


def _verdict(loaded: Loaded) -> str:
    parts = f" with {loaded.parts} of {PARTS}/" if loaded.parts else ""
    if loaded.file is None:
        return f"{DEFAULT_FILE} does not exist; the configuration without it is valid{parts}."
    return f"{loaded.file} is valid{parts}."


@config.command()
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("-o", "--output", type=click.Choice(list(_FORMATS)), default="table", help="Output format.")
@configuration_flags
def show(origin: bool, output: str, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Show the configuration in effect."""
    loaded = effective(config_file, settings)
    print_warnings(loaded)
    click.echo(_FORMATS[output](loaded, origin=origin), nl=False)


@config.command(short_help="Reload the configuration of all daemons here.")
@click.argument("daemon", required=False)
@output_flag
@runtime_flag
def reload(daemon: str | None, output: str, runtime: Path) -> None:
    """Reload the configuration of all daemons here, or of DAEMON (server, agent, balancer).

    Lists for each daemon which changed fields are applied now and which need a restart. An invalid configuration is
    refused, and the running one stays; the other daemons are reloaded all the same. Exits with 1 if a daemon refused it
    or a worker has not confirmed it, with 3 if a daemon does not answer.
    """
    here = roles(runtime)
    if not here:
        raise no_daemon(runtime)
    names = [role for role in here if daemon in (None, label(role), role.rpartition("/")[2])]
    if not names:
        raise click.ClickException(f"no daemon {daemon!r} here: name one of {', '.join(map(label, here))}")
    results = {role: _reloaded(runtime, role) for role in names}
    reloaded = {role: result for role, result in results.items() if isinstance(result, Reload)}
    if output in DOCUMENTS:
        print_document(msgspec.to_builtins(reloaded), output)
    else:
        for role, result in reloaded.items():
            click.echo("\n".join(render(label(role), result)))
    failed = {role: result for role, result in results.items() if not isinstance(result, Reload)}
    for role, error in failed.items():
        click.echo(f"Error: {label(role)}: {error.message}", err=True)
    codes = {error.exit_code for error in failed.values()}
    if any(result.unconfirmed for result in reloaded.values()):
        codes.add(NOT_CONFIRMED)
    raise click.exceptions.Exit(min(codes, default=0))


def _reloaded(runtime: Path, role: str) -> Reload | click.ClickException:
    """Reload one daemon. What it refuses, with a file of its own, says nothing about the others."""
    try:
        return msgspec.convert(answer(runtime, role, Request("reload")), Reload)
    except click.ClickException as error:
        return error


def render(name: str, result: Reload) -> Iterator[str]:
    """Render the answer of one daemon. Pure."""
    yield from _changes(f"{name}: applied now", result.applied)
    yield from _changes(
        f"{name}: needs a restart of the daemon; the running value stays until then", result.needs_restart
    )
    yield from _changes(f"{name}: read by another daemon only", result.ignored)
    changed = len(result.applied) + len(result.needs_restart) + len(result.ignored)
    yield f"{name}: {result.unchanged} fields unchanged" if changed else f"{name}: nothing has changed"
    if result.unconfirmed:
        yield f"{name}: not confirmed yet by {', '.join(result.unconfirmed)}: see holdfast status, then reload again"


def _changes(head: str, changes: Sequence[FieldChange]) -> Iterator[str]:
    if changes:
        yield head
        yield from (f"  {change}" for change in changes)
