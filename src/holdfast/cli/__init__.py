"""The operator's commands: thin, and loaded only when they are used, so that `holdfast --help` is instant."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click

from holdfast import __version__


class _Lazy(NamedTuple):
    group: str
    place: str
    summary: str


COMMANDS: dict[str, _Lazy] = {
    "up": _Lazy("run", "holdfast.cli.lab:up", "Run a small fleet on this machine, without root."),
    "lab": _Lazy("run", "holdfast.cli.lab:lab", "The same, and break it: holdfast lab break THING."),
    "server": _Lazy("run", "holdfast.cli.daemons.server:server", "Run one controller of the fleet."),
    "agent": _Lazy("run", "holdfast.cli.daemons.agent:agent", "Run the agent of this host, and look at it."),
    "balancer": _Lazy("run", "holdfast.cli.daemons.balancer:balancer", "Run the load balancer, and look at it."),
    "status": _Lazy("see", "holdfast.cli.status.page:status", "What runs here, how it is, and what needs you."),
    "orphans": _Lazy("see", "holdfast.cli.status.observed:orphans", "Endpoints whose host has no live agent."),
    "probe": _Lazy("see", "holdfast.cli.probe.command:probe", "Probe virtual addresses from outside, live."),
    "history": _Lazy("see", "holdfast.cli.history:history", "What was decided, when, by which worker and why."),
    "get": _Lazy(
        "see", "holdfast.cli.change.inventory:get", "What should be there: hosts, networks, endpoints, frontends …"
    ),
    "leader": _Lazy("see", "holdfast.cli.leader:leader", "Who leads, who led before, and why that ended."),
    "explain": _Lazy(
        "understand", "holdfast.cli.explain.command:explain", "Why is a backend, frontend, host … as it is?"
    ),
    "diff": _Lazy("understand", "holdfast.cli.change.inventory:diff", "What applying a file would change."),
    "plan": _Lazy(
        "understand", "holdfast.cli.change.intents:plan", "What is not as wanted now, and what stands in its way."
    ),
    "apply": _Lazy("change", "holdfast.cli.change.inventory:apply", "Make the inventory say what a file says."),
    "move": _Lazy("change", "holdfast.cli.change.inventory:move", "Put an endpoint on another host."),
    "delete": _Lazy("change", "holdfast.cli.change.inventory:delete", "Delete objects from the inventory."),
    "undo": _Lazy("change", "holdfast.cli.change.inventory:undo", "Make an object what it was before its last change."),
    "inventory": _Lazy(
        "change", "holdfast.cli.change.inventory:inventory", "Make the inventory's tables; say whose it is."
    ),
    "resync": _Lazy("change", "holdfast.cli.change.resync:resync", "Compare inventory and store, now."),
    "pause": _Lazy("change", "holdfast.cli.change.intents:pause", "Hold all changes of a worker."),
    "resume": _Lazy("change", "holdfast.cli.change.intents:resume", "End a pause."),
    "sync": _Lazy("change", "holdfast.cli.change.intents:sync", "Compare everything again, now."),
    "reload": _Lazy("change", "holdfast.cli.change.intents:reload", "Check the configuration and run with it."),
    "backend": _Lazy("change", "holdfast.cli.change.backend:backend", "Take a backend out of service, or put it back."),
    "step-down": _Lazy("change", "holdfast.cli.leader:step_down", "Hand over leadership."),
    "allow": _Lazy("open a gate", "holdfast.cli.change.intents:allow", "Let through what a gate holds."),
    "source": _Lazy("open a gate", "holdfast.cli.change.intents:source", "Deal with a source that will not come back."),
    "store": _Lazy("open a gate", "holdfast.cli.store:store", "Go on with a restored store."),
    "doctor": _Lazy("check", "holdfast.cli.doctor.command:doctor", "Check what Holdfast stands on."),
    "config": _Lazy("check", "holdfast.cli.config:config", "Check and show the configuration."),
    "completion": _Lazy("support", "holdfast.cli.support:completion", "Print a completion script for your shell."),
    "version": _Lazy("support", "holdfast.cli.support:version", "Print the version."),
}


class _Commands(click.Group):
    """Knows every command by name and summary, and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        module, _, name = lazy.place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see holdfast --help."
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in dict.fromkeys(lazy.group for lazy in COMMANDS.values()):
            with formatter.section(group.capitalize()):
                rows = [(name, lazy.summary) for name, lazy in COMMANDS.items() if lazy.group == group]
                formatter.write_dl(rows)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def main() -> None:
    """Holdfast: a network control plane that stays right through its own failures."""
