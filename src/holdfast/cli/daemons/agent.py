"""`holdfast agent`: run the agent of this host, show peers and pending deletes of a running one, or adopt its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.common.config_flags import configuration_flags, http_flag
from holdfast.cli.common.control_socket import label, request_change, roles, runtime_flag, send_command
from holdfast.cli.common.format import DOCUMENTS, count, output_flag, print_document, release_lines, short, watchable
from holdfast.config import FlagValue

ROLE = "agent"
WORKER = "peers"

F = TypeVar("F", bound=Callable[..., Any])


def host_flag(command: F) -> F:
    """Add `--host`, for machines on which several agents run, such as a lab."""
    return click.option("--host", help="Ask the agent of this host, where several run.")(command)


def worker_of(runtime: Path, host: str | None) -> str:
    """Return the main worker of that host's agent, which has to run on this machine."""
    here = sorted(label(role) for role in roles(runtime) if role.rpartition("/")[2] == ROLE)
    if host is None and len(here) > 1:
        raise click.UsageError(f"several agents run here: name one with --host: {', '.join(here)}")
    if host is None:
        return WORKER
    if here == [ROLE]:
        here = [str(send_command(runtime, WORKER, "about")["host"])]
        if here == [host]:
            return WORKER
    if host not in here:
        raise click.ClickException(
            f"no agent of {host} is running here; running: {', '.join(here) or 'none'}. Run this on {host}."
        )
    return f"{host}/{WORKER}"


@click.group(invoke_without_command=True)
@click.option("--dry-run", is_flag=True, help="Print what the agent would change now, and change nothing.")
@configuration_flags
@http_flag
@click.pass_context
def agent(
    context: click.Context,
    dry_run: bool,
    config_file: str | None,
    settings: Sequence[FlagValue],
    http: Sequence[FlagValue],
) -> None:
    """Run the agent of this host, or with a command inspect the running one."""
    if context.invoked_subcommand is not None:
        return
    if dry_run:
        from holdfast.cli.daemons.agent_dry_run import print_plan

        print_plan(config_file, settings)
        return
    from holdfast.agent.worker import WORKERS
    from holdfast.cli.daemons.run import run_role

    run_role(ROLE, WORKERS, config_file, (*settings, *http))


@agent.command(short_help="Show the other hosts, as this one sees them.")
@host_flag
@output_flag
@runtime_flag
@watchable
def peers(host: str | None, output: str, runtime: Path) -> None:
    """Show the other hosts, how this host reaches them, and what is programmed for them."""
    found = send_command(runtime, worker_of(runtime, host), "peers")
    if output in DOCUMENTS:
        print_document(found, output)
        return
    for line in peer_lines(found):
        click.echo(line)


@agent.command(short_help="Show pending deletes, and what holds them.")
@host_flag
@output_flag
@runtime_flag
@watchable
def pending(host: str | None, output: str, runtime: Path) -> None:
    """Show pending deletes: what holds each one, and which handler has not acknowledged it."""
    found = send_command(runtime, worker_of(runtime, host), "pending")
    if output in DOCUMENTS:
        print_document(found, output)
    elif not found:
        click.echo("no pending deletes", err=True)
    else:
        for line in pending_lines(found):
            click.echo(line)


@agent.command(short_help="Accept a restored store for this host.")
@click.option("--reason", required=True, help="Why this store is the right one; recorded with your name.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and replaced, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@host_flag
@runtime_flag
def adopt(reason: str, dry_run: bool, yes: bool, host: str | None, runtime: Path) -> None:
    """Accept a store that was restored from a backup, for this host alone. Shows what this releases first."""
    worker = worker_of(runtime, host)
    preview = send_command(runtime, worker, "adopt", dry_run=True)
    for line in adoption_lines(preview):
        click.echo(line)
    if dry_run:
        return
    count = preview["deletes"] + preview["replaces"]
    if count and not yes:
        click.confirm(f"release {count:,} changes on this host?", abort=True)
    request_change(runtime, worker, "adopt", reason=reason, seal=preview["seal"])
    click.echo(f"the store is accepted for this host: “{reason}”", err=True)


def adoption_lines(preview: dict[str, Any]) -> Iterator[str]:
    """Render the preview of `agent adopt`. Pure."""
    yield from preview["stores"]
    yield f"{preview['deletes']:,} deletes and {preview['replaces']:,} replaces are held until the store is accepted"
    for op, key in preview["first"]:
        yield f"{op:<8} {key}"
    more = preview["deletes"] + preview["replaces"] - len(preview["first"])
    if more > 0:
        yield f"… and {more:,} more"


def peer_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """Render `agent peers`. Pure."""
    wide = max([6, *(len(", ".join(one["reached"])) for one in found)])
    yield f"{'HOST':<20} {'REACHED':<{wide}} {'ROUTES':>8} {'OBJECTS':>8}   STATE"
    for one in found:
        reached = ", ".join(one["reached"]) or "not reached"
        counts = f"{count(one['routes']):>8} {count(one['objects']):>8}"
        yield f"{one['host']:<20} {reached:<{wide}} {counts}   {peer_state(one)}"


def peer_state(one: dict[str, Any]) -> str:
    """Describe the objects of a peer that are not in sync. Pure."""
    states = [f"{one[state]:,} {state}" for state in ("failed", "held", "missing") if one[state]]
    if one.get("arriving"):
        states.append(f"{one['arriving']:,} in live migration to this host")
    if not one["wanted"]:
        states.insert(0, "no longer wanted")
    return ", ".join(states) or "in sync"


def pending_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """Render `agent pending`. Pure."""
    for one in found:
        owner = f"of {one['host']}" if one["host"] else "owner unknown"
        outstanding = one["waiting"]
        lasting = short(outstanding["since_s"]) if outstanding else "–"
        why = outstanding["why"] if outstanding else "about to be applied"
        migration = f"; its workload {one['arrival']}" if one.get("arrival") else ""
        yield f"{one['key']:<40} {owner:<24} {lasting:>7}  {why}{migration}"
        for status in one["handlers"]:
            if not status["acknowledged"]:
                yield f"{'':<40} {status['handler']} has not deleted it: {status['error'] or 'not asked yet'}"
    yield from release_lines(one["waiting"] for one in found if one["waiting"])
