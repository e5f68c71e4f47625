"""What an operator asks a running worker for: pause, resume, allow, forget a source, look again, reload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import LEADER_ONLY, answer, leading, nobody, roles, runtime_flag, tell, workers
from holdfast.cli.common.format import short
from holdfast.cli.daemons.agent import worker_of
from holdfast.runtime.control import Request

_SHOWN = 20
_NOTHING_COMPARED = "nothing was compared since the start: holdfast status tells what it waits for"

reason = click.option("--reason", required=True, help="Why; it is kept with your name.")
within = click.option("--for", "within", metavar="30m", help="Until then only.")


@click.command()
@click.argument("worker")
@click.argument("name", required=False)
@within
@reason
@runtime_flag
def pause(worker: str, name: str | None, within: str | None, reason: str, runtime: Path) -> None:
    """Hold all changes of WORKER, with `agent HOST` of that host's agent, with `frontend NAME` of one frontend. Nothing
    is forgotten meanwhile. Of the leader's workers (syncer, agent-status, endpoint-status) it holds whoever leads."""
    whom, command, about = _held(runtime, worker, name, "pause")
    click.echo(tell(runtime, whom, command, reason=reason, **about, **({"for": within} if within else {})), err=True)


@click.command()
@click.argument("worker")
@click.argument("name", required=False)
@runtime_flag
def resume(worker: str, name: str | None, runtime: Path) -> None:
    """End a pause of WORKER, of `agent HOST`, or of `frontend NAME`."""
    whom, command, about = _held(runtime, worker, name, "resume")
    click.echo(tell(runtime, whom, command, **about), err=True)


def _held(runtime: Path, worker: str, name: str | None, do: str) -> tuple[str, str, dict[str, str]]:
    """Who is told what, for that to be paused or resumed."""
    if worker == "frontend":
        if name is None:
            raise click.UsageError("say which frontend: holdfast balancer status has their names.")
        return "balancer", "frontend", {"do": do, "name": name}
    if worker == "agent" and name is not None:
        return worker_of(runtime, name), do, {}
    if name is not None:
        raise click.UsageError(f"only a frontend and an agent have a NAME here; {worker} stands alone.")
    return _meant(runtime, worker), do, {}


def _meant(runtime: Path, worker: str) -> str:
    return leading(runtime, worker) if worker in LEADER_ONLY else worker


@click.command()
@click.argument("worker")
@runtime_flag
def sync(worker: str, runtime: Path) -> None:
    """Let WORKER compare everything again, now."""
    click.echo(tell(runtime, _meant(runtime, worker), "sync"), err=True)


@click.command()
@click.argument("worker")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@runtime_flag
def plan(worker: str, output: str, runtime: Path) -> None:
    """What WORKER finds not as wanted now, and what stands in its way."""
    held = tell(runtime, _meant(runtime, worker), "held")
    if output == "json":
        click.echo(json.dumps(held, indent=2))
    elif not held["objects"]:
        click.echo("everything is as wanted" if held.get("passes", 1) else _NOTHING_COMPARED, err=True)
    else:
        _show(held["objects"], held["total"])


@click.command()
@click.argument("gate")
@click.option("--once", is_flag=True, help="Exactly what is held now.")
@within
@click.option("--yes", is_flag=True, help="Do not ask.")
@reason
@runtime_flag
def allow(gate: str, once: bool, within: str | None, yes: bool, reason: str, runtime: Path) -> None:
    """Let through what GATE (such as routes/brake) holds. Shows it first."""
    worker, _, kind = gate.rpartition("/")
    if kind not in ("brake", "mass_loss"):
        raise click.UsageError(f"{gate!r} cannot be allowed: only a brake can, as in {worker or 'routes'}/brake.")
    if once == bool(within):
        raise click.UsageError("say either --once or --for TIME.")
    worker = _meant(runtime, worker)
    held = tell(runtime, worker, "held")
    count = held["gates"].get(kind, 0)
    _show([one for one in held["objects"] if one["gate"] == kind], count)
    if not yes and (count or not once):
        click.confirm(f"let {count:,} through?" if once else f"let everything through for {within}?", abort=True)
    how = {"for": within} if within else {"shown": count, "seal": held["seal"]}
    click.echo(tell(runtime, worker, "allow", reason=reason, **how), err=True)


@click.group()
def source() -> None:
    """Deal with a source that will not come back."""


@source.command()
@click.argument("name")
@click.option("--worker", help="Which worker is to forget it. Default: every one that has it.")
@reason
@runtime_flag
def forget(name: str, worker: str | None, reason: str, runtime: Path) -> None:
    """Count source NAME as complete and empty: what only it wanted goes, behind the brake."""
    declined = []
    told = [worker] if worker else workers(runtime)
    for one in told:
        try:
            click.echo(tell(runtime, one, "forget", source=name, reason=reason), err=True)
        except click.ClickException as error:
            declined.append(f"{one}: {error.message}")
    if len(declined) == len(told):
        raise click.ClickException("; ".join(declined))


@click.command()
@runtime_flag
def reload(runtime: Path) -> None:
    """Check the configuration and run with it; on any error the running one stays."""
    names = roles(runtime)
    if not names:
        raise nobody(runtime)
    for role in names:
        click.echo(f"{role}: {answer(runtime, role, Request('reload'))}", err=True)


def _show(held: list[dict[str, Any]], total: int) -> None:
    for one in held[:_SHOWN]:
        click.echo(f"{one['op']:<8} {one['key']:<40} {short(one['since_s']):>7}  {one['why']}")
    if total > _SHOWN:
        click.echo(f"… and {total - _SHOWN:,} more")
    for opens in dict.fromkeys(one["opens"] for one in held if one["opens"]):
        click.echo(f"opens by: {opens}")
