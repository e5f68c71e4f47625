"""`holdfast token`: create, list and revoke tokens of the API."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from holdfast.api.tokens import FILE, TokenFile, TokenRole, TokensUnreadable
from holdfast.cli.common.config_flags import effective
from holdfast.cli.common.control_socket import runtime_folder

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")

state_flag = click.option(
    "--state", metavar="DIR", help="State folder of the daemon that serves the API. Default: paths.state, or the lab's."
)


@click.group()
def token() -> None:
    """Create, list or revoke tokens of the API. Only their hashes are stored."""


@token.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([one.value for one in TokenRole]),
    default="read",
    show_default=True,
    help="What it may do.",
)
@state_flag
def create(name: str, role: str, state: str | None) -> None:
    """Create a token for NAME, and print it once. A token of that name is replaced.

    NAME is recorded as the operator of what is done with it.
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError("a name has letters, digits and . _ @ - only, at most 63 of them.")
    secret = _changed(lambda: _file(state).create(name, TokenRole(role)))
    click.echo(secret)
    click.echo(f"this is the only time it is shown; to end it: holdfast token revoke {name}", err=True)


@token.command("list")
@state_flag
def show(state: str | None) -> None:
    """Show names and roles."""
    found = _changed(lambda: _file(state).all())
    for one in found:
        click.echo(f"{one.name:<24} {one.role.value:<6} created {one.created:%Y-%m-%d %H:%M:%SZ}")
    if not found:
        click.echo("there is no token: holdfast token create NAME --role admin", err=True)


@token.command()
@click.argument("name")
@state_flag
def revoke(name: str, state: str | None) -> None:
    """End the token of NAME; sessions that began with it end, too."""
    if not _changed(lambda: _file(state).revoke(name)):
        raise click.ClickException(f"there is no token {name}: holdfast token list")
    click.echo(f"{name} is revoked", err=True)


def _file(given: str | None) -> TokenFile:
    if given:
        return TokenFile(Path(given) / FILE)
    configured, runtime = effective(None).config.paths, runtime_folder(None)
    is_lab = str(runtime) != configured.runtime
    return TokenFile((runtime.parent / "state" if is_lab else Path(configured.state)) / FILE)


def _changed(do: Callable[[], T]) -> T:
    try:
        return do()
    except (TokensUnreadable, OSError) as error:
        raise click.ClickException(str(error)) from error
