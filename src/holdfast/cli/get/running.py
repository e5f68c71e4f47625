"""Kinds of `get` that the daemons of this machine know: workers, gates, intents, peers and routes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.balancer import VIPS_WORKER
from holdfast.cli.common.control_socket import send_command, workers_named
from holdfast.cli.common.format import count, short
from holdfast.cli.daemons.agent import peer_state, worker_of
from holdfast.cli.get.listing import Listing
from holdfast.cli.status.intents import all_intents
from holdfast.cli.status.table import present
from holdfast.cli.status.view import read_status
from holdfast.model.base.time import rfc3339
from holdfast.model.control.intent import Intent

Read = Callable[[Path, str | None], Listing]


def _workers(runtime: Path, _host: str | None) -> Listing:
    view = asyncio.run(read_status(runtime))
    found = [(one.role, present(worker, one.role, view)) for one in view.reports for worker in one.workers]
    rows = [
        [
            f"{daemon}/{worker.name}",
            "–" if worker.pulse_s is None else short(worker.pulse_s),
            worker.state,
            count(worker.backlog),
            "–" if worker.lag_s is None else short(worker.lag_s),
            str(worker.restarts),
        ]
        for daemon, worker in found
    ]
    documents = [{"daemon": daemon, **msgspec.to_builtins(worker)} for daemon, worker in found]
    columns = ("WORKER", "PULSE", "STATE", "BACKLOG", "LAG", "RESTARTS 24h")
    return Listing(columns, rows, documents, "no worker runs here")


def _gates(runtime: Path, _host: str | None) -> Listing:
    view = asyncio.run(read_status(runtime))
    held = [(worker, one) for worker, changes in view.held.items() for one in changes if one["gate"]]
    counts = Counter((worker, one["gate"], one["reason"], one["opens"]) for worker, one in held)
    rows = [
        [f"{worker}/{gate}", f"{number:,}", f"{reason}. To release: {opens}"]
        for (worker, gate, reason, opens), number in sorted(counts.items())
    ]
    documents = [
        {"gate": f"{worker}/{gate}", "held": number, "reason": reason, "opens": opens}
        for (worker, gate, reason, opens), number in sorted(counts.items())
    ]
    return Listing(("GATE", "HELD", "REASON"), rows, documents, "no gate holds anything")


def _intents(runtime: Path, _host: str | None) -> Listing:
    found = all_intents(runtime)
    rows = [[f"{one.what.value} {one.scope}", _until(one), one.who, one.why] for one in found]
    return Listing(
        ("INTENT", "UNTIL", "WHO", "WHY"), rows, msgspec.to_builtins(found), "no operator asked for anything"
    )


def _until(intent: Intent) -> str:
    return "–" if intent.until is None else rfc3339(intent.until)


def _peers(runtime: Path, host: str | None) -> Listing:
    found = send_command(runtime, worker_of(runtime, host), "peers")
    rows = [
        [
            one["host"],
            ", ".join(one["reached"]) or "not reached",
            count(one["routes"]),
            count(one["objects"]),
            peer_state(one),
        ]
        for one in found
    ]
    return Listing(("HOST", "REACHED", "ROUTES", "OBJECTS", "STATE"), rows, found, "this host has no peers")


def _routes(runtime: Path, host: str | None) -> Listing:
    found = send_command(runtime, worker_of(runtime, host), "routes")
    rows = [
        [one["key"].removeprefix("route "), one["host"], one["endpoint"] or "–", _route_state(one)] for one in found
    ]
    return Listing(("ROUTE", "HOST", "ENDPOINT", "STATE"), rows, found, "this agent wants no routes")


def _route_state(one: Mapping[str, Any]) -> str:
    if one["waiting"]:
        return str(one["waiting"]["why"])
    return "programmed" if not one["missing"] else "missing"


def served_from_file(runtime: Path, kind: str) -> Listing | None:
    """Return frontends or backends of the balancer here if it serves from a file, so that no inventory has them."""
    try:
        if not workers_named(runtime, VIPS_WORKER) or send_command(runtime, "balancer", "about")["uses_store"]:
            return None
        shown = send_command(runtime, "balancer", "balancer")
    except click.ClickException:
        return None
    members = [(one, member) for one in shown["frontends"] for pool in one["pools"] for member in pool]
    if kind == "frontend":
        names = {one["name"]: [member["backend"] for of, member in members if of is one] for one in shown["frontends"]}
        rows = [[one["name"], one["vip"], one["state"], ", ".join(names[one["name"]])] for one in shown["frontends"]]
        return Listing(("FRONTEND", "ADDRESS", "STATE", "BACKENDS"), rows, shown["frontends"], "no frontend is served")
    found = {member["backend"]: member for _, member in members}
    used = {name: sorted({of["name"] for of, member in members if member["backend"] == name}) for name in found}
    rows = [[name, one["address"], one["state"], ", ".join(used[name])] for name, one in sorted(found.items())]
    documents = [{"name": name, **one, "frontends": used[name]} for name, one in sorted(found.items())]
    return Listing(("BACKEND", "ADDRESS", "STATE", "FRONTENDS"), rows, documents, "no backend is served")


RUNNING: Mapping[str, Read] = {
    "workers": _workers,
    "gates": _gates,
    "intents": _intents,
    "peers": _peers,
    "routes": _routes,
}
