"""Commands to a running worker: pause, resume, sync, plan, allow, source forget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import (
    LEADER_ONLY,
    leading,
    runtime_flag,
    send_command,
    workers,
)
from holdfast.cli.common.format import output_flag, release_lines, short
from holdfast.cli.daemons.agent import worker_of

_SHOWN = 20
_NOT_COMPARED_YET = "no comparison has finished since the start: see holdfast status"

reason_flag = click.option("--reason", required=True, help="Why; recorded with your name.")
within_flag = click.option("--for", "within", metavar="30m", help="Expire after this duration.")


@click.command()
@click.argument("worker")
@click.argument("name", required=False)
@within_flag
@reason_flag
@runtime_flag
def pause(worker: str, name: str | None, within: str | None, reason: str, runtime: Path) -> None:
    """Hold all changes of WORKER, of `agent HOST`, or of `frontend NAME`, until `holdfast resume`.

    Held changes are applied after the pause. A pause of syncer, agent-status or endpoint-status stays in force when
    the leader changes.
    """
    target, command, args = _target(runtime, worker, name, "pause")
    click.echo(
        send_command(runtime, target, command, reason=reason, **args, **({"for": within} if within else {})), err=True
    )


@click.command()
@click.argument("worker")
@click.argument("name", required=False)
@runtime_flag
def resume(worker: str, name: str | None, runtime: Path) -> None:
    """End a pause of WORKER, of `agent HOST`, or of `frontend NAME`."""
    target, command, args = _target(runtime, worker, name, "resume")
    click.echo(send_command(runtime, target, command, **args), err=True)


def _target(runtime: Path, worker: str, name: str | None, action: str) -> tuple[str, str, dict[str, str]]:
    """Return worker, command and arguments for a pause or its end."""
    if worker == "frontend":
        if name is None:
            raise click.UsageError("name a frontend; holdfast balancer status lists them.")
        return "balancer", "frontend", {"do": action, "name": name}
    if worker == "agent" and name is not None:
        return worker_of(runtime, name), action, {}
    if name is not None:
        raise click.UsageError(f"unexpected NAME: only frontend and agent take one, {worker} does not.")
    return _of_leader(runtime, worker), action, {}


def _of_leader(runtime: Path, worker: str) -> str:
    """Return the leader's worker of that name if only the leader's acts, else the name as it is."""
    return leading(runtime, worker) if worker in LEADER_ONLY else worker


@click.command()
@click.argument("worker")
@runtime_flag
def sync(worker: str, runtime: Path) -> None:
    """Make WORKER compare everything now."""
    click.echo(send_command(runtime, _of_leader(runtime, worker), "sync"), err=True)


@click.command()
@click.argument("worker")
@output_flag
@runtime_flag
def plan(worker: str, output: str, runtime: Path) -> None:
    """Show what WORKER has to change, and what holds each change."""
    held = send_command(runtime, _of_leader(runtime, worker), "held")
    if output == "json":
        click.echo(json.dumps(held, indent=2))
    elif not held["objects"]:
        click.echo("everything is in sync" if held.get("passes", 1) else _NOT_COMPARED_YET, err=True)
    else:
        _show(held["objects"], held["total"])


@click.command()
@click.argument("gate")
@click.option("--once", is_flag=True, help="Release exactly what is held now.")
@within_flag
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_flag
@runtime_flag
def allow(gate: str, once: bool, within: str | None, yes: bool, reason: str, runtime: Path) -> None:
    """Release what GATE (such as syncer/brake) holds. Shows it first.

    syncer/witness is released for exactly the deletes that are shown, and never for a time.
    """
    worker, _, kind = gate.rpartition("/")
    _refuse(gate, worker, kind, within)
    if once == bool(within):
        raise click.UsageError("give either --once or --for DURATION.")
    worker = _of_leader(runtime, worker)
    held = send_command(runtime, worker, "held", gate=kind)
    count = held["gates"].get(kind, 0)
    _show([one for one in held["objects"] if one["gate"] == kind], count)
    if not yes and (count or not once):
        click.confirm(f"release {count:,} changes?" if once else f"release all changes for {within}?", abort=True)
    seal = held.get("seals", {}).get(kind, held["seal"])
    scope = {"for": within} if within else {"shown": count, "seal": seal}
    click.echo(send_command(runtime, worker, "allow", gate=kind, reason=reason, **scope), err=True)


def _refuse(gate: str, worker: str, kind: str, within: str | None) -> None:
    """End the command for a gate that no operator can release, or not in this way."""
    if kind not in ("brake", "mass_loss", "witness"):
        raise click.UsageError(
            f"{gate!r} cannot be released: only a brake can, such as {worker or 'syncer'}/brake, and syncer/witness."
        )
    if kind == "witness" and worker.rpartition("/")[2] != "syncer":
        raise click.UsageError(f"{gate!r} does not exist: only the syncer has this gate, as syncer/witness.")
    if kind == "witness" and within:
        raise click.UsageError("syncer/witness is never released for a time, only for what is shown: use --once.")


@click.group()
def source() -> None:
    """Give up on a source that will not come back."""


@source.command()
@click.argument("name")
@click.option("--worker", help="Worker that gives up on it. Default: every worker that has it.")
@reason_flag
@runtime_flag
def forget(name: str, worker: str | None, reason: str, runtime: Path) -> None:
    """Treat source NAME as complete and empty: objects that only it wanted are deleted, subject to the brake."""
    declined = []
    targets = [worker] if worker else workers(runtime)
    for one in targets:
        try:
            click.echo(send_command(runtime, one, "forget", source=name, reason=reason), err=True)
        except click.ClickException as error:
            declined.append(f"{one}: {error.message}")
    if len(declined) == len(targets):
        raise click.ClickException("; ".join(declined))


def _show(held: list[dict[str, Any]], total: int) -> None:
    for one in held[:_SHOWN]:
        click.echo(f"{one['op']:<8} {one['key']:<40} {short(one['since_s']):>7}  {one['why']}")
    if total > _SHOWN:
        click.echo(f"… and {total - _SHOWN:,} more")
    for line in release_lines(held):
        click.echo(line)
