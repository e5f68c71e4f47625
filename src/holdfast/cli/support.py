"""`holdfast completion` and `holdfast version`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast import __version__


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script. To load it: source <(holdfast completion bash)."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE").source())


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"holdfast {__version__}")
