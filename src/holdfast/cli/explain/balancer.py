"""`holdfast explain backend | frontend | flow`: answers of a running balancer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import send_command
from holdfast.cli.common.format import release_rows, row, short
from holdfast.cli.daemons.balancer import WORKER, announced, paused, pool_role


def query(runtime: Path, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = send_command(runtime, WORKER, "explain", kind=kind, name=name)
    return found


def query_flow(runtime: Path, source: str, to: str | None) -> dict[str, Any]:
    if to is None:
        raise click.UsageError("the VIP is missing: holdfast explain flow SRC:PORT VIP (ADDRESS:PORT, or a frontend)")
    found: dict[str, Any] = send_command(runtime, WORKER, "flow", source=source, to=to)
    return found


def backend(one: dict[str, Any]) -> Iterator[str]:
    yield f"{one['name']} ({one['address']}) has been {one['state']} for {short(one['since_s'])}: {one['why']}"
    yield ""
    for check, found in one["checks"].items():
        against = f", {found['against']} results in a row against that" if found["against"] else ""
        error = f"; last probe: {found['error'].removeprefix(f'{check}: ')}" if found.get("error") else ""
        yield row("CHECK", f"{check}: {found['verdict']}{against}; probed at the {found['pace']} interval{error}")
    for intent in one["intents"]:
        weight = f" {intent['weight']}" if intent["weight"] is not None else ""
        weight += f" in {intent['frontend']}" if intent.get("frontend") else ""
        until = f" until {intent['until']}" if intent["until"] else ""
        yield row("INTENT", f"{intent['what']}{weight}{until} by {intent['who']}: “{intent['why']}”")
    for entry in one["entries"]:
        kill = ", its flows are ended" if entry["kill"] else ""
        weights = f"wanted weight {entry['wanted']}{kill}; {_programmed(entry)}"
        yield row("FRONTEND", f"{entry['frontend']} ({entry['vip']}): {weights}")
        yield from _outstanding([entry["outstanding"]] if entry["outstanding"] else [])
    if not one["entries"]:
        yield row("FRONTEND", "none: no frontend has it in a pool")
    for transition in reversed(one["transitions"]):
        ago = f"{short(transition['ago_s'])} ago"
        yield row("HISTORY", f"{ago:<12} {transition['old']} → {transition['new']}: {transition['why']}")


def frontend(one: dict[str, Any]) -> Iterator[str]:
    panic = ", panic: no pool has its share of healthy weight, so the first serves with all" if one["panic"] else ""
    yield f"{one['name']} ({one['vip']}) is {one['state']}{panic}"
    yield ""
    if one.get("paused"):
        yield row("INTENT", paused(one["paused"]))
        yield row("", f"To release: holdfast resume frontend {one['name']}")
    for index, pool in enumerate(one["pools"]):
        for member in pool:
            asked = "" if member.get("asked") is None else f", set to {member['asked']} by an operator"
            weights = f"weight {member['configured']}{asked}, wanted now {member['wanted']}, {_programmed(member)}"
            backend = f"{member['backend']} ({member['address']}) {member['state']}"
            yield row(f"POOL {index}", f"{pool_role(one, index)}: {backend}, {weights}")
    if one.get("announce"):
        why = f"; {one['announce']['why']}" if one["announce"]["why"] else ""
        yield row("ANNOUNCE", f"its address is {announced(one['announce'])}{why}")
    if one["unknown"]:
        yield row("UNKNOWN", ", ".join(one["unknown"]))
    yield row("WARM-UP", "over" if one["released"] else "holds this frontend")
    yield from _outstanding(one["outstanding"])
    if not one["outstanding"]:
        yield row("STATE", "in sync" if one["programmed"] else "not programmed")


def flow(one: dict[str, Any]) -> Iterator[str]:
    vip = f"{one['frontend']} ({one['vip']})"
    if one["established"]:
        yield f"established with {one['established']} through {vip}, and stays there"
    elif one["backend"]:
        yield f"a new flow goes to {one['backend']} through {vip}"
    else:
        yield f"a new flow is refused: {vip} has no backend with a weight"
    yield ""
    yield row("BUCKET", f"{one['bucket']} of {one['buckets']}, by jhash of the {one['hashed']}")
    if one["backend"]:
        weight = "" if one["weight"] is None else f", weight {one['weight']}"
        yield row("BACKEND", f"{one['backend']}{weight}, {one['share'] / one['buckets']:.1%} of the buckets")
    if one["established"] and one["established"] != one["backend"]:
        yield row("CONNTRACK", "the table has changed since the flow was opened; connection tracking keeps its backend")


def _programmed(entry: dict[str, Any]) -> str:
    return "not programmed" if entry["programmed"] is None else f"programmed {entry['programmed']}"


def _outstanding(changes: list[dict[str, Any]]) -> Iterator[str]:
    for one in changes:
        yield row("PENDING", f"{one['op']} {one['key']} for {short(one['since_s'])}, {one['why']}")
        yield from release_rows([one])
