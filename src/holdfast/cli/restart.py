"""`holdfast restart`: a worker is ended and started again by its supervisor, here or on another server."""

from __future__ import annotations

import time
from pathlib import Path

import click

from holdfast.cli.common.completion import complete_worker
from holdfast.cli.common.control_socket import (
    Refused,
    answer,
    electors,
    refusals,
    request_change,
    resolve,
    runtime_flag,
    workers,
)
from holdfast.runtime.control import Request

_STARTED_WITHIN = 30.0


@click.command()
@click.argument("kind", type=click.Choice(["worker"]), metavar="KIND")
@click.argument("name", shell_complete=complete_worker)
@click.option("--server", metavar="NAME", help="Server whose worker to restart. Default: the daemon on this machine.")
@click.option("--reason", required=True, help="Why; recorded with your name.")
@runtime_flag
def restart(kind: str, name: str, server: str | None, reason: str, runtime: Path) -> None:
    """Restart worker NAME. It ends its current work first, and does not count as failed.

    With --server, the request goes through etcd, by any server of this machine.
    """
    if server is not None and not _runs_here(runtime, server):
        _restart_elsewhere(runtime, server, name, reason)
    else:
        _restart_here(runtime, name if server is None else f"{server}/{name}", reason)


def _runs_here(runtime: Path, server: str) -> bool:
    """Return True for a server of this machine: in a lab there are several. Its elector may hang."""
    in_a_lab = any(one.startswith(f"{server}/") for one in workers(runtime))
    return in_a_lab or any(about["name"] == server for about in electors(runtime).values())


def _restart_here(runtime: Path, worker: str, reason: str) -> None:
    known = workers(runtime)
    # A server that runs alone has no name of its own in the runtime folder.
    named = resolve(worker if worker in known else worker.rpartition("/")[2], known)
    role, name = known[named], named.rpartition("/")[2]
    before = _pid(runtime, role, name)
    with refusals():
        answer(runtime, role, Request("restart", {"reason": reason}, name))
    deadline = time.monotonic() + _STARTED_WITHIN
    while time.monotonic() < deadline:
        pid = _pid(runtime, role, name)
        if pid not in (None, before):
            click.echo(f"{named} was restarted: pid {before or 'none'} → {pid}", err=True)
            return
        time.sleep(0.1)
    raise click.ClickException(f"{named} has not started again within {_STARTED_WITHIN:g} s: see holdfast status")


def _restart_elsewhere(runtime: Path, server: str, worker: str, reason: str) -> None:
    asking = next(iter(electors(runtime)), None)
    if asking is None:
        raise Refused(f"no server runs on this machine: run this on {server}, or where a server runs")
    args = {"server": server, "name": worker, "reason": reason}
    click.echo(request_change(runtime, asking, "restart-elsewhere", **args), err=True)


def _pid(runtime: Path, role: str, worker: str) -> int | None:
    reports = answer(runtime, role, Request("status"))["workers"]
    return next((one["pid"] for one in reports if one["name"] == worker), None)
