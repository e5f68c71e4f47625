"""The operator's commands: thin, and imported only when they are used, so that `holdfast --help` is fast."""

from __future__ import annotations

import importlib
import os
from typing import NamedTuple

import click

from holdfast import __version__


class _Lazy(NamedTuple):
    group: str
    entry: str
    """MODULE:NAME of the command, below `holdfast.cli`."""
    summary: str


COMMANDS: dict[str, _Lazy] = {
    "up": _Lazy("run", "lab:up", "Start a demo fleet on this machine, without root."),
    "lab": _Lazy("run", "lab:lab", "Start a demo fleet, or break it: holdfast lab break NAME."),
    "server": _Lazy("run", "daemons.server:server", "Run one server of the fleet."),
    "agent": _Lazy("run", "daemons.agent:agent", "Run the agent of this host, or inspect it."),
    "balancer": _Lazy("run", "daemons.balancer:balancer", "Run the load balancer, or inspect it."),
    "status": _Lazy("inspect", "status.page:status", "Show problems, the leader and all workers."),
    "get": _Lazy("inspect", "get:get", "Show objects of the inventory, or the servers."),
    "leader": _Lazy("inspect", "leader:leader", "Show the current and former leaders."),
    "history": _Lazy("inspect", "history:history", "Show decisions, with their reasons."),
    "orphans": _Lazy("inspect", "status.observed:orphans", "Show endpoints whose host has no live agent."),
    "probe": _Lazy("inspect", "probe.command:probe", "Probe virtual addresses as a client would."),
    "explain": _Lazy("explain", "explain.command:explain", "Explain the state of one object."),
    "plan": _Lazy("explain", "change.intents:plan", "Show pending changes of a worker, and what holds them."),
    "diff": _Lazy("explain", "change.inventory:diff", "Show what apply or resync would change."),
    "apply": _Lazy("change", "change.inventory:apply", "Create or update inventory objects from a file."),
    "move": _Lazy("change", "change.inventory:move", "Move an endpoint to another host."),
    "delete": _Lazy("change", "change.inventory:delete", "Delete objects from the inventory."),
    "undo": _Lazy("change", "change.inventory:undo", "Undo the last change of an inventory object."),
    "import": _Lazy(
        "change", "change.importing:import_objects", "Bring existing objects of the store into the inventory."
    ),
    "inventory": _Lazy(
        "change", "change.adoption:inventory", "Create the inventory's tables, or settle a restored one."
    ),
    "resync": _Lazy("change", "change.resync:resync", "Compare inventory and store now, and fix the store."),
    "pause": _Lazy("change", "change.intents:pause", "Hold all changes of the fleet, a worker, a host or a frontend."),
    "resume": _Lazy("change", "change.intents:resume", "End a pause."),
    "sync": _Lazy("change", "change.intents:sync", "Make a worker compare everything now."),
    "backend": _Lazy("change", "change.backend:backend", "Pause, disable or weight a backend."),
    "step-down": _Lazy("change", "leader:step_down", "Hand over leadership."),
    "restart": _Lazy("change", "restart:restart", "Restart a worker, here or on another server."),
    "gate": _Lazy("release a gate", "change.intents:gate", "Show closed gates, release one, or take that back."),
    "ignore": _Lazy("release a gate", "change.ignore:ignore", "Leave an object of the store alone for good."),
    "source": _Lazy("release a gate", "change.intents:source", "Give up on a source that will not come back."),
    "region": _Lazy("release a gate", "change.region:region", "End a region of the inventory."),
    "store": _Lazy("release a gate", "change.store:store", "Accept a store restored from a backup."),
    "doctor": _Lazy("check", "doctor.command:doctor", "Check what Holdfast depends on."),
    "openstack": _Lazy("check", "openstack:openstack", "Compare Neutron with etcd, and repair etcd."),
    "config": _Lazy("check", "config:config", "Check, show and reload the configuration."),
    "completion": _Lazy("other", "support:completion", "Print a shell completion script."),
    "version": _Lazy("other", "support:version", "Print the version."),
}


class _Commands(click.Group):
    """Knows every command by name and summary, and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        module, _, name = lazy.entry.partition(":")
        command = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see holdfast --help."
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in dict.fromkeys(lazy.group for lazy in COMMANDS.values()):
            with formatter.section(group.capitalize()):
                rows = [(name, lazy.summary) for name, lazy in COMMANDS.items() if lazy.group == group]
                formatter.write_dl(rows)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Holdfast: a network control plane that stays right through its own failures.

    Exit codes: 0 good, 1 needs you, differs or is invalid, 2 wrong usage, 3 cannot tell, 4 refused.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
