"""Commands to a running worker: pause, resume, reconcile, plan, gate list, allow and revoke, source forget."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from holdfast.cli.common.completion import complete_name, complete_worker
from holdfast.cli.common.control_socket import (
    CANNOT_TELL,
    LEADER_ONLY,
    CannotTell,
    Refused,
    electors,
    leading,
    request_change,
    runtime_flag,
    send_command,
    workers,
    workers_named,
)
from holdfast.cli.common.format import (
    DOCUMENTS,
    counted,
    output_flag,
    print_document,
    release_lines,
    short,
    watchable,
)
from holdfast.cli.daemons.agent import worker_of
from holdfast.cli.status.view import StatusView, read_status
from holdfast.config.schema.scalars import Unfit, duration
from holdfast.model.control.intent import IntentKind

_SHOWN = 20
F = TypeVar("F", bound=Callable[..., Any])
_NOT_COMPARED_YET = "no comparison has finished since the start: see holdfast status"

reason_flag = click.option("--reason", required=True, help="Why; recorded with your name.")


def _within(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    try:
        if given is not None:
            duration(given)
    except Unfit as unfit:
        raise click.BadParameter(f"it {unfit}") from unfit
    return given


within_flag = click.option("--for", "within", metavar="30m", callback=_within, help="Expire after this duration.")


KINDS = ("fleet", "server", "worker", "host", "frontend", "backend")
_kind = click.argument("kind", type=click.Choice(KINDS), metavar="KIND")


@click.command()
@_kind
@click.argument("name", required=False, shell_complete=complete_name)
@within_flag
@reason_flag
@runtime_flag
def pause(kind: str, name: str | None, within: str | None, reason: str, runtime: Path) -> None:
    """Hold all changes of KIND NAME, until `holdfast resume` or the end of --for.

    KIND is fleet (every server, agent and balancer that uses the store), server (takes no part in elections), worker,
    host, frontend or backend. Held changes are applied after the pause: what then differs. A pause of the fleet and of
    a worker of the leader is stored in etcd; every daemon remembers it on disk.
    """
    target, command, args = intent_target(runtime, kind, name, "pause")
    within_args = {"for": within} if within else {}
    click.echo(request_change(runtime, target, command, reason=reason, **args, **within_args), err=True)
    if kind == "fleet" and not within:
        click.echo("it has no end: holdfast status asks for one until it is resumed", err=True)


@click.command()
@_kind
@click.argument("name", required=False, shell_complete=complete_name)
@runtime_flag
def resume(kind: str, name: str | None, runtime: Path) -> None:
    """End a pause of KIND NAME: see holdfast pause --help."""
    target, command, args = intent_target(runtime, kind, name, "resume")
    click.echo(request_change(runtime, target, command, **args), err=True)


def intent_target(runtime: Path, kind: str, name: str | None, action: str) -> tuple[str, str, dict[str, str]]:
    """Return worker, command and arguments of a pause, or of its end."""
    if kind == "fleet":
        if name is not None:
            raise click.UsageError("there is one fleet: it takes no NAME.")
        return any_server(runtime), f"{action}-fleet", {}
    if kind == "server":
        return _server(runtime, name), action, {}
    if name is None:
        look = "; holdfast balancer status lists them" if kind in ("frontend", "backend") else ""
        raise click.UsageError(f"name a {kind}{look}.")
    if kind in ("frontend", "backend"):
        return "balancer", kind, {"do": action, "name": name}
    if kind == "host":
        return worker_of(runtime, name), action, {}
    return leading_worker(runtime, name), action, {}


def _server(runtime: Path, name: str | None) -> str:
    """Return the elector of that server, or of the only one here."""
    if name is None or f"{name}/elector" in workers_named(runtime, "elector"):
        return f"{name}/server" if name else "server"
    if send_command(runtime, "server", "about")["name"] != name:
        raise click.ClickException(f"server {name} does not run here: run this on its host")
    return "server"


def any_server(runtime: Path) -> str:
    """Return a server of this machine: any of them stores the intent for the fleet."""
    found = next(iter(electors(runtime)), None)
    if found is None:
        raise click.ClickException("no server is running here: run this on a host with holdfast server")
    return found


def leading_worker(runtime: Path, worker: str) -> str:
    """Return the leader's worker of that name if only the leader's acts, else the name as it is."""
    return leading(runtime, worker) if worker in LEADER_ONLY else worker


@click.command()
@click.argument("worker", shell_complete=complete_worker)
@runtime_flag
def reconcile(worker: str, runtime: Path) -> None:
    """Make WORKER compare everything now."""
    click.echo(request_change(runtime, leading_worker(runtime, worker), "sync"), err=True)


@click.command()
@click.argument("worker", required=False, shell_complete=complete_worker)
@output_flag
@runtime_flag
@watchable
def plan(worker: str | None, output: str, runtime: Path) -> None:
    """Show what WORKER has to change, and what holds each change; without WORKER, all workers here that act."""
    if worker is None:
        _plans(runtime, output)
        return
    held = send_command(runtime, leading_worker(runtime, worker), "held")
    if output in DOCUMENTS:
        print_document(held, output)
    elif not held["objects"]:
        click.echo("everything is in sync" if held.get("passes", 1) else _NOT_COMPARED_YET, err=True)
    else:
        _show(held["objects"], held["total"])


def _plans(runtime: Path, output: str) -> None:
    """Print the plans of all workers that have one. Exits with 3 if a worker does not answer."""
    found: dict[str, Any] = {}
    silent: list[str] = []
    for name in workers(runtime):
        try:
            found[name] = send_command(runtime, name, "held")
        except CannotTell as error:
            silent.append(f"{name} does not answer: {error.message}")
        except click.ClickException:  # it plans nothing: a prober, or a worker of a follower
            continue
    if output in DOCUMENTS:
        print_document(found, output)
    else:
        for name, held in found.items():
            in_sync = "in sync" if held.get("passes", 1) else _NOT_COMPARED_YET
            click.echo(f"{name}: {counted(held['total'], 'change')}" if held["objects"] else f"{name}: {in_sync}")
            _show(held["objects"], held["total"])
    for sentence in silent:
        click.echo(sentence, err=True)
    if silent:
        raise click.exceptions.Exit(CANNOT_TELL)


@click.group()
def gate() -> None:
    """Show closed gates, release one, or take that back."""


@gate.command("list", short_help="Show the gates that hold changes.")
@output_flag
@runtime_flag
@watchable
def list_gates(output: str, runtime: Path) -> None:
    """Show the gates that hold changes, what releases them, and what operators have allowed."""
    view = asyncio.run(read_status(runtime))
    if output in DOCUMENTS:
        print_document({"held": view.held, "intents": msgspec.to_builtins(view.intents)}, output)
        return
    closed = sorted({(worker, one["gate"], one["reason"], one["opens"]) for worker, one in _held(view) if one["gate"]})
    counts = Counter((worker, one["gate"]) for worker, one in _held(view))
    for worker, kind, reason, opens in closed:
        click.echo(f"{worker}/{kind}   holds {counts[worker, kind]:,}: {reason}")
        click.echo(f"    To release: {opens}")
    allowed = [one for one in view.intents if one.what is IntentKind.ALLOW]
    for intent in allowed:
        once = "" if intent.until else " once"
        click.echo(f"{intent.scope.name}/brake   allowed{once} by {intent.sentence}")
        click.echo(f"    To take it back: holdfast gate revoke {intent.scope.name}/brake")
    if not closed and not allowed:
        click.echo("no gate holds anything", err=True)


def _held(view: StatusView) -> Iterator[tuple[str, dict[str, Any]]]:
    for worker, held in view.held.items():
        yield from ((worker, one) for one in held)


def _gate_arguments(command: F) -> F:
    """Add `GATE [SCOPE]`; they arrive as `gate`, such as syncer/brake, or brake if no worker was named."""

    def joined(context: click.Context, _parameter: click.Parameter, gate: str) -> str:
        scope = context.params.pop("scope", None)
        if scope is not None and "/" in gate:
            raise click.UsageError(f"the worker is named twice: give {gate}, or {gate.rpartition('/')[2]} and SCOPE.")
        return gate if scope is None else f"{scope}/{gate}"

    worker = click.argument("scope", required=False, is_eager=True, shell_complete=complete_worker)
    return click.argument("gate", callback=joined)(worker(command))


@gate.command(short_help="Take an allow of GATE back.")
@_gate_arguments
@runtime_flag
def revoke(gate: str, runtime: Path) -> None:
    """Take an allow of GATE at the worker SCOPE back: the rest of its time, or what it has not released yet.

    `holdfast gate revoke brake syncer` and `holdfast gate revoke syncer/brake` are the same. An allow of syncer/witness
    can be taken back for deletes that another gate still holds. Losses that were allowed at a mass_loss gate are
    written at once, so there is nothing to take back.
    """
    worker, _, kind = gate.rpartition("/")
    if kind == "mass_loss":
        raise click.UsageError(f"{gate!r} has nothing to take back: losses that were allowed are written at once.")
    _refuse(gate, worker, kind, None)
    if not worker:
        raise click.UsageError(f"name the worker: holdfast gate revoke {kind} SCOPE; holdfast gate list shows allows.")
    click.echo(request_change(runtime, leading_worker(runtime, worker), "revoke", gate=kind), err=True)


@gate.command(short_help="Release what GATE holds. Shows it first.")
@_gate_arguments
@click.option("--once", is_flag=True, help="Release exactly what is held now.")
@within_flag
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_flag
@runtime_flag
def allow(gate: str, once: bool, within: str | None, yes: bool, reason: str, runtime: Path) -> None:
    """Release what GATE (brake, witness or mass_loss) holds at the worker SCOPE. Shows it first.

    `holdfast gate allow brake syncer` and `holdfast gate allow syncer/brake` are the same. Without SCOPE it is the only
    worker here at which GATE holds something. syncer/witness is released for exactly the deletes that are shown, and
    never for a time.
    """
    worker, _, kind = gate.rpartition("/")
    _refuse(gate, worker, kind, within)
    if once == bool(within):
        raise click.UsageError("give either --once or --for DURATION.")
    worker = leading_worker(runtime, worker or _holder(runtime, kind))
    held = send_command(runtime, worker, "held", gate=kind)
    count = held["gates"].get(kind, 0)
    _show([one for one in held["objects"] if one["gate"] == kind], count)
    if not yes and (count or not once):
        click.confirm(f"release {count:,} changes?" if once else f"release all changes for {within}?", abort=True)
    seal = held.get("seals", {}).get(kind, held["seal"])
    scope = {"for": within} if within else {"shown": count, "seal": seal}
    click.echo(request_change(runtime, worker, "allow", gate=kind, reason=reason, **scope), err=True)


def _holder(runtime: Path, kind: str) -> str:
    """Return the only worker here at which a gate of this kind holds something. One that does not answer ends the
    command: it might be the one that is meant."""
    found = []
    for name in workers(runtime):
        try:
            held = send_command(runtime, name, "held", gate=kind)
        except CannotTell:
            raise
        except click.ClickException:  # it holds nothing: a prober, or a worker of a follower
            continue
        if held["gates"].get(kind):
            found.append(name)
    if not found:
        raise Refused(f"no {kind} holds anything here: see holdfast gate list")
    if len(found) > 1:
        raise click.UsageError(f"name the worker, as in holdfast gate allow {kind} {found[0]}: {', '.join(found)}.")
    return found[0]


def _refuse(gate: str, worker: str, kind: str, within: str | None) -> None:
    """End the command for a gate that no operator can release, or not in this way."""
    if kind not in ("brake", "mass_loss", "witness"):
        raise click.UsageError(
            f"{gate!r} cannot be released: only a brake can, such as {worker or 'syncer'}/brake, and syncer/witness."
        )
    if kind == "witness" and worker and worker.rpartition("/")[2] != "syncer":
        raise click.UsageError(f"{gate!r} does not exist: only the syncer has this gate, as syncer/witness.")
    if kind == "witness" and within:
        raise click.UsageError("syncer/witness is never released for a time, only for what is shown: use --once.")


@click.group()
def source() -> None:
    """Give up on a source that will not come back."""


@source.command(short_help="Treat source NAME as complete and empty.")
@click.argument("name")
@click.option("--worker", help="Worker that gives up on it. Default: every worker that has it.")
@reason_flag
@runtime_flag
def forget(name: str, worker: str | None, reason: str, runtime: Path) -> None:
    """Treat source NAME as complete and empty: objects that only it wanted are deleted, subject to the brake."""
    declined: dict[str, list[str]] = {}
    has_forgotten = False
    for one in [worker] if worker else workers(runtime):
        try:
            click.echo(request_change(runtime, one, "forget", source=name, reason=reason), err=True)
            has_forgotten = True
        except click.ClickException as error:
            if worker or "unknown command" not in error.message:  # most workers have no sources
                declined.setdefault(error.message, []).append(one)
    if not has_forgotten:
        reasons = [f"{', '.join(names)}: {why}" for why, names in declined.items()]
        raise Refused("; ".join(reasons) or "no worker here has a source that could be given up")


def _show(held: list[dict[str, Any]], total: int) -> None:
    for one in held[:_SHOWN]:
        click.echo(f"{one['op']:<8} {one['key']:<40} {short(one['since_s']):>7}  {one['why']}")
    if total > _SHOWN:
        click.echo(f"… and {total - _SHOWN:,} more")
    for line in release_lines(held):
        click.echo(line)
