"""`holdfast explain server NAME`: why that server leads or does not lead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.common.control_socket import answer, ask_any, send_command, workers
from holdfast.cli.common.format import row, short
from holdfast.cli.common.terms import stale_term
from holdfast.runtime.control import Request
from holdfast.store.servers import LEADING, ServerSeen


def query(runtime: Path, name: str) -> dict[str, Any]:
    """Ask that server's elector, and add its last decisions about leadership."""
    electors = {one: role for one, role in workers(runtime).items() if one.rpartition("/")[2] == "elector"}
    views = {role: send_command(runtime, one, "about") for one, role in electors.items()}
    roles = {view["name"]: role for role, view in views.items()}
    if name not in roles:
        return _elsewhere(runtime, name)
    role = roles[name]
    found = [
        answer(runtime, role, Request("history", {"key": key, "last": 10})) for key in ("leader", f"server {name}")
    ]
    decisions = sorted((one for part in found for one in part), key=lambda one: str(one["time"]))
    return {**views[role], "decisions": decisions[-10:]}


def _elsewhere(runtime: Path, name: str) -> dict[str, Any]:
    """Return what the store knows of a server on another machine, as any daemon here reads it."""
    servers = msgspec.convert(ask_any(runtime, "servers"), list[ServerSeen])
    found = next((one for one in servers if one.name == name), None)
    if found is None:
        registered = ", ".join(one.name for one in servers) or "none"
        raise click.ClickException(f"no server {name} is registered; registered: {registered}")
    return {"name": name, "seen": msgspec.to_builtins(found)}


def _seen_lines(one: ServerSeen) -> Iterator[str]:
    yield f"{one.name} leads, term {one.term}." if one.role == LEADING else f"{one.name} does not lead."
    yield ""
    yield row("SERVER", f"on host {one.host or 'unknown'}, version {one.version or 'unknown'}, lag {short(one.lag_s)}")
    if one.unrenewed_s:
        yield row("TERM", stale_term(one.term, one.unrenewed_s))
    yield row("FOLLOWER" if one.role != LEADING else "ABLE", "can lead" if one.able else f"cannot lead: {one.why_not}")
    yield from (row("PAUSED", pause) for pause in one.pauses)
    yield row("MORE", f"its decisions are on its machine: holdfast explain server {one.name}")


def lines(one: dict[str, Any]) -> Iterator[str]:
    if "seen" in one:
        yield from _seen_lines(msgspec.convert(one["seen"], ServerSeen))
        return
    lasting = short(one["since_s"])
    if one["phase"] == "leading":
        yield f"{one['name']} leads, term {one['term']}, for {lasting}; its lease expires in {one['lease_s']:.1f} s"
    elif one["leader"]:
        yield f"{one['name']} does not lead, {one['leader']} does; it has been {one['phase']} for {lasting}"
    else:
        yield f"{one['name']} does not lead, and sees no leader; it has been {one['phase']} for {lasting}"
    yield ""
    if one["refused"]:
        yield row("REFUSED", one["refused"])
    if one["paused"]:
        yield row("PAUSED", f"by {one['paused']}")
        yield row("", f"To release: holdfast resume server {one['name']}")
    if one["refuses_store"]:
        yield row("STORE", one["refuses_store"])
        yield from ([row("", f"To release: {one['opens']}")] if one["opens"] else [])
    if one["store_error"]:
        yield row("STORE", one["store_error"])
    for name, able in sorted(one["followers"].items()):
        yield row("FOLLOWER", f"{name}: {'can take over' if able else 'cannot take over, or is paused'}")
    for decision in reversed(one["decisions"]):
        yield row("HISTORY", f"{decision['time'][:19]}Z  {decision['sentence']}")
