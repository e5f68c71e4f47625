"""Reference of the command, generated from the commands themselves: what `--help` says, for all of them.

`python -m docs.command_reference` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

import holdfast.cli

_HEAD = """\
# Command reference

`holdfast COMMAND --help` prints the same. Data goes to stdout, everything else to stderr. Exit codes: 0 good, 1 needs
you, differs or is invalid, 2 wrong usage, 3 cannot tell (nobody answers), 4 refused.

A command is verb, kind and name. `server`, `agent` and `balancer` are the daemons themselves: alone they run one, as a
service manager does; with a further word they inspect the one that runs. There is no `holdfast run`.
"""


Words = tuple[str, ...]


def commands(
    group: click.Command, path: tuple[str, ...] = ("holdfast",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below a group with its words, in the order of `--help`."""
    if not isinstance(group, click.Group):
        return
    context = click.Context(group, info_name=path[-1])
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if not command.hidden:
            yield (*path, name), command
            yield from commands(command, (*path, name))


def reference() -> str:
    """The whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _HEAD
    for path, command in commands(holdfast.cli.main):
        yield f"{'##' if len(path) == 2 else '###'} `{' '.join(path)}`"
        yield ""
        yield "```text"
        yield from _help(path, command).splitlines()
        yield "```"
        yield ""


def _help(path: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(command, info_name=path[-1], parent=_parent(path[:-1]), terminal_width=100)
    return command.get_help(context)


def _parent(path: tuple[str, ...]) -> click.Context:
    return click.Context(click.Command(path[-1]), info_name=" ".join(path))


if __name__ == "__main__":
    sys.stdout.write(reference())
