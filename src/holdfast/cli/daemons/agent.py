"""`holdfast agent`: runs the agent of this host, or asks the one that runs about its peers and what waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.common.config_flags import configuration_flags
from holdfast.cli.common.control_socket import label, roles, runtime_flag, tell
from holdfast.cli.common.format import count, short
from holdfast.config import FlagValue

ROLE = "agent"
WORKER = "peers"

F = TypeVar("F", bound=Callable[..., Any])

output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output."
)


def host_flag(command: F) -> F:
    """Adds `--host`, for machines on which several agents run, such as a lab."""
    return click.option("--host", help="Whose agent is asked, where several run.")(command)


def worker_of(runtime: Path, host: str | None) -> str:
    """The worker that answers for that host's agent."""
    if host is None:
        return WORKER
    here = sorted(label(role) for role in roles(runtime) if role.rpartition("/")[2] == ROLE)
    if here == [ROLE]:
        return WORKER
    if host not in here:
        raise click.ClickException(f"no agent of {host} runs here; there are: {', '.join(here) or 'none'}")
    return f"{host}/{WORKER}"


@click.group(invoke_without_command=True)
@click.option("--dry-run", is_flag=True, help="Only print what would be changed now; nothing is.")
@configuration_flags
@click.pass_context
def agent(context: click.Context, dry_run: bool, config_file: str | None, settings: Sequence[FlagValue]) -> None:
    """Run the agent of this host, or with a command: look at the one that runs."""
    if context.invoked_subcommand is not None:
        return
    if dry_run:
        from holdfast.cli.daemons.agent_dry_run import print_rehearsal

        print_rehearsal(config_file, settings)
        return
    from holdfast.agent.worker import WORKERS
    from holdfast.cli.daemons.run import run_role

    run_role(ROLE, WORKERS, config_file, settings)


@agent.command()
@host_flag
@output
@runtime_flag
def peers(host: str | None, output: str, runtime: Path) -> None:
    """The other hosts, how they are reached, and how much is programmed for them."""
    found = tell(runtime, worker_of(runtime, host), "peers")
    if output == "json":
        click.echo(json.dumps(found, indent=2))
        return
    for line in peer_lines(found):
        click.echo(line)


@agent.command()
@host_flag
@output
@runtime_flag
def pending(host: str | None, output: str, runtime: Path) -> None:
    """Deletions that are not over: what holds them, and which handler has not acknowledged."""
    found = tell(runtime, worker_of(runtime, host), "pending")
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    elif not found:
        click.echo("nothing waits to be deleted", err=True)
    else:
        for line in pending_lines(found):
            click.echo(line)


def peer_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """The page of `agent peers`. Pure."""
    wide = max([6, *(len(", ".join(one["reached"])) for one in found)])
    yield f"{'HOST':<20} {'REACHED':<{wide}} {'ROUTES':>8} {'OBJECTS':>8}   STATE"
    for one in found:
        reached = ", ".join(one["reached"]) or "not reached"
        yield (
            f"{one['host']:<20} {reached:<{wide}} {count(one['routes']):>8} {count(one['objects']):>8}   {_state(one)}"
        )


def _state(one: dict[str, Any]) -> str:
    words = [f"{one[state]:,} {state}" for state in ("failed", "held", "missing") if one[state]]
    if one.get("arriving"):
        words.append(f"{one['arriving']:,} on the way here by migration")
    if not one["wanted"]:
        words.insert(0, "not wanted any more")
    return ", ".join(words) or "as wanted"


def pending_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """The page of `agent pending`. Pure."""
    for one in found:
        whose = f"of {one['host']}" if one["host"] else "of nobody known"
        waits = one["waiting"]
        lasting = short(waits["since_s"]) if waits else "–"
        arrives = f"; its workload {one['arrival']}" if one.get("arrival") else ""
        yield f"{one['key']:<40} {whose:<24} {lasting:>7}  {waits['why'] if waits else 'about to be applied'}{arrives}"
        for status in one["handlers"]:
            if not status["acknowledged"]:
                yield f"{'':<40} {status['handler']} has not let go of it: {status['error'] or 'it was not asked yet'}"
    for opens in dict.fromkeys(one["waiting"]["opens"] for one in found if one["waiting"] and one["waiting"]["opens"]):
        yield f"opens by: {opens}"
