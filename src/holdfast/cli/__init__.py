"""The operator's commands: thin, and imported only when they are used, so that `holdfast --help` is fast."""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple

import click

from holdfast import __version__
from holdfast.cli.common.escaping import escaped_output


class _Lazy(NamedTuple):
    group: str
    entry: str
    """MODULE:NAME of the command, below `holdfast.cli`."""
    summary: str


COMMANDS: dict[str, _Lazy] = {
    "lab": _Lazy("run", "lab.command:lab", "Start a demo fleet on this machine, break it, or stop it."),
    "server": _Lazy("run", "daemons.server:server", "Run one server of the fleet."),
    "agent": _Lazy("run", "daemons.agent:agent", "Run the agent of this host, or inspect it."),
    "balancer": _Lazy("run", "daemons.balancer:balancer", "Run the load balancer, or inspect it."),
    "status": _Lazy("inspect", "status.page:status", "Show problems, the leader and all workers."),
    "get": _Lazy("inspect", "get.command:get", "Show objects of a kind, desired and observed."),
    "leader": _Lazy("inspect", "leader:leader", "Show the current and former leaders."),
    "events": _Lazy("inspect", "history:events", "Show the newest decisions of the daemons here, as they are made."),
    "history": _Lazy("inspect", "history:history", "Show decisions, with their reasons."),
    "top": _Lazy("inspect", "top:top", "Show CPU and memory of every worker here."),
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
    "drain": _Lazy("change", "change.drain:drain", "Take the backends on a host out of every balancer."),
    "undrain": _Lazy("change", "change.drain:undrain", "End a drain."),
    "disable": _Lazy("change", "change.backend:disable", "Take a backend out of service, and end its flows."),
    "enable": _Lazy("change", "change.backend:enable", "Put a disabled backend back."),
    "weight": _Lazy("change", "change.backend:weight", "Override the weight of a backend or a pool."),
    "reconcile": _Lazy("change", "change.intents:reconcile", "Make a worker compare everything now."),
    "step-down": _Lazy("change", "leader:step_down", "Hand over leadership."),
    "restart": _Lazy("change", "restart:restart", "Restart a worker, here or on another server."),
    "gate": _Lazy("release a gate", "change.intents:gate", "Show closed gates, release one, or take that back."),
    "ignore": _Lazy("release a gate", "change.ignore:ignore", "Leave an object of the store alone for good."),
    "source": _Lazy("release a gate", "change.intents:source", "Give up on a source that will not come back."),
    "region": _Lazy("release a gate", "change.region:region", "End a region of the inventory."),
    "store": _Lazy("release a gate", "change.store:store", "Accept a restored store; print roles of its users."),
    "doctor": _Lazy("check", "doctor.command:doctor", "Check what Holdfast depends on."),
    "openstack": _Lazy("check", "openstack:openstack", "Compare Neutron with etcd, and repair etcd."),
    "config": _Lazy("check", "config:config", "Check, show and reload the configuration."),
    "token": _Lazy("other", "token:token", "Create, list or revoke tokens of the API."),
    "sysdump": _Lazy("other", "sysdump.command:sysdump", "Collect the state of all daemons here into one archive."),
    "completion": _Lazy("other", "support:completion", "Print a shell completion script."),
    "version": _Lazy("other", "support:version", "Print the version."),
}


CONFIG_FILE = "holdfast.config_file"
"""Key in the meta of a command's context: the file that `--config` names."""

_EXTRAS = {
    "alembic": "server",
    "litestar": "api",
    "neutron": "openstack",
    "psycopg": "server",
    "sqlalchemy": "server",
    "uvicorn": "api",
}
"""The extra that brings a module which the base install has not."""


_WITHOUT_CONFIG = ("completion", "version")
_DAEMONS = ("server", "agent", "balancer")


def _accept_config(command: click.Command) -> None:
    """Let a command and all below it take `--config FILE`, and remember it for the default folders.

    Most commands need no configuration but its `paths`, and do not ask for it themselves.
    """
    if isinstance(command, click.Group):
        for below in command.commands.values():
            _accept_config(below)
        if not command.invoke_without_command:
            return
    option = next((one for one in command.params if "--config" in one.opts), None)
    if option is None:
        option = click.Option(["--config"], metavar="FILE", help="Configuration file.", expose_value=False)
        command.params.append(option)
    option.is_eager = True  # --runtime takes its default from the file
    option.callback = _remember_config


def _remember_config(context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    if given is not None:
        context.meta[CONFIG_FILE] = given
    return given


class _Commands(click.Group):
    """Knows every command by name and summary, and imports a command when it is called."""

    def main(self, *args: Any, **extra: Any) -> Any:
        # protection: what backends, etcd and agents sent would be obeyed by the terminal
        with escaped_output():
            return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            package = "install the package holdfast-server, or " if extra != "openstack" else ""
            raise click.ClickException(
                f"this needs {error.name}, which is not installed here: {package}pip install 'holdfast[{extra}]'"
            ) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        module, _, name = lazy.entry.partition(":")
        command = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        assert isinstance(command, click.Command)
        if cmd_name not in _WITHOUT_CONFIG:
            _accept_config(command)
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
@click.option("--lab", metavar="PATH", help="Use the lab in this folder; default: .holdfast in the working folder.")
@click.pass_context
def main(context: click.Context, lab: str | None) -> None:
    """Holdfast: a network control plane that stays right through its own failures.

    Exit codes: 0 good, 1 needs you, differs or is invalid, 2 wrong usage, 3 cannot tell, 4 refused.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    if os.environ.get("HOLDFAST_SERVER") and context.invoked_subcommand not in _DAEMONS:
        # Answers about another fleet than the one it names would be worse than none.
        raise click.UsageError("HOLDFAST_SERVER has no meaning: commands ask the daemons of this machine; unset it")
