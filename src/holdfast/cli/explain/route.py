"""`holdfast explain route ADDRESS`: where packets to that address go from this host, and through which objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import send_command, workers
from holdfast.cli.common.format import row
from holdfast.cli.daemons.agent import worker_of
from holdfast.cli.explain.host import decision_rows, decisions_about, object_rows


def query(runtime: Path, address: str, seen_from: str | None) -> dict[str, Any]:
    """Ask an agent here to trace that address, and add the last decisions about the objects on the path."""
    worker = worker_of(runtime, seen_from)
    role = workers(runtime).get(worker)
    if role is None:
        raise click.ClickException("no agent is running here: run this on a host with an agent")
    found: dict[str, Any] = send_command(runtime, worker, "explain", kind="route", name=address)
    trace = found["trace"]
    keys = {one["key"].partition(" dev ")[0] for one in trace["steps"]} if trace else set()
    return {**found, "name": address, "decisions": decisions_about(runtime, role, keys)}


def lines(one: dict[str, Any]) -> Iterator[str]:
    trace = one["trace"]
    if trace is None:
        yield f"{one['host']} has no route of ours to {one['name']}: no known endpoint has this address."
        return
    in_sync = all(step["wanted"] and not step["missing"] and not step["waiting"] for step in trace["steps"])
    condition = "" if in_sync else " once all of these objects are in sync"
    yield f"From {one['host']}, packets to {one['name']} go {trace['leads']}{condition}."
    yield ""
    yield row("ROUTE", f"{trace['prefix']}{_owner(trace)}")
    for step in trace["steps"]:
        yield from object_rows(step, step["key"])
    yield from decision_rows(one["decisions"])


def _owner(trace: Mapping[str, Any]) -> str:
    if not trace["host"]:
        return ", found in the kernel; no source has claimed it since the agent lost its journal"
    endpoint = f"endpoint {trace['endpoint']} on " if trace["endpoint"] else ""
    return f" belongs to {endpoint}host {trace['host']}"
