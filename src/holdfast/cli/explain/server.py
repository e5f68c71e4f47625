"""`holdfast explain server NAME`: why that server leads or does not lead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import answer, send_command, workers
from holdfast.cli.common.format import row, short
from holdfast.runtime.control import Request


def query(runtime: Path, name: str) -> dict[str, Any]:
    """Ask that server's elector, and add its last decisions about leadership."""
    electors = {one: role for one, role in workers(runtime).items() if one.rpartition("/")[2] == "elector"}
    views = {role: send_command(runtime, one, "about") for one, role in electors.items()}
    roles = {view["name"]: role for role, view in views.items()}
    if name not in roles:
        running = ", ".join(sorted(roles)) or "none"
        raise click.ClickException(f"no server {name} is running on this machine; running: {running}")
    role = roles[name]
    found = [
        answer(runtime, role, Request("history", {"key": key, "last": 10})) for key in ("leader", f"server {name}")
    ]
    decisions = sorted((one for part in found for one in part), key=lambda one: str(one["time"]))
    return {**views[role], "decisions": decisions[-10:]}


def lines(one: dict[str, Any]) -> Iterator[str]:
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
