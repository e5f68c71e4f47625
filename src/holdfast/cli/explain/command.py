"""`holdfast explain KIND NAME`: what is wanted, what is there, what stands between, and how it came to that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import answer, runtime_flag, tell, workers
from holdfast.cli.common.format import short
from holdfast.cli.daemons.balancer import WORKER, announced, paused
from holdfast.cli.explain import flow as explain_flow
from holdfast.cli.explain import inventory as explain_inventory
from holdfast.cli.explain import route as explain_route
from holdfast.cli.explain.host import about_host, beside, endpoint_here, host
from holdfast.cli.status import observed
from holdfast.runtime.control import Request

Told = Iterator[str]


def backend(one: dict[str, Any]) -> Told:
    yield f"{one['name']} ({one['address']}) has been {one['state']} for {short(one['since_s'])}: {one['why']}"
    yield ""
    for check, found in one["checks"].items():
        against = f", {found['against']} results in a row against that" if found["against"] else ""
        yield _row("CHECK", f"{check}: {found['verdict']}{against}; probed at the {found['pace']} pace")
    for wish in one["intents"]:
        weight = f" {wish['weight']}" if wish["weight"] is not None else ""
        until = f" until {wish['until']}" if wish["until"] else ""
        yield _row("ASKED", f"{wish['what']}{weight}{until} by {wish['who']}: “{wish['why']}”")
    for entry in one["entries"]:
        kill = ", its flows are ended" if entry["kill"] else ""
        now = "not programmed" if entry["programmed"] is None else f"programmed {entry['programmed']}"
        yield _row("SERVES", f"{entry['frontend']} ({entry['vip']}): wanted weight {entry['wanted']}{kill}; {now}")
        yield from _waiting([entry["outstanding"]] if entry["outstanding"] else [])
    if not one["entries"]:
        yield _row("SERVES", "no frontend has it in a pool")
    for transition in reversed(one["transitions"]):
        ago = f"{short(transition['ago_s'])} ago"
        yield _row("BEFORE", f"{ago:<12} {transition['old']} → {transition['new']}: {transition['why']}")


def frontend(one: dict[str, Any]) -> Told:
    panic = ", in panic: no pool has its share of healthy weight, so the first serves with all" if one["panic"] else ""
    yield f"{one['name']} ({one['vip']}) is {one['state']}{panic}"
    yield ""
    if one.get("paused"):
        yield _row("ASKED", f"{paused(one['paused'])}; opens by: holdfast resume frontend {one['name']}")
    for index, pool in enumerate(one["pools"]):
        serves = "serves" if index == one["active_pool"] else "stands by"
        for member in pool:
            now = "not programmed" if member["programmed"] is None else f"programmed {member['programmed']}"
            weights = f"weight {member['configured']}, wanted now {member['wanted']}, {now}"
            yield _row(
                f"POOL {index}", f"{serves}: {member['backend']} ({member['address']}) {member['state']}, {weights}"
            )
    if one.get("announce"):
        why = f"; {one['announce']['why']}" if one["announce"]["why"] else ""
        yield _row("ANNOUNCE", f"its address is {announced(one['announce'])}{why}")
    if one["unknown"]:
        yield _row("UNKNOWN", ", ".join(one["unknown"]))
    yield _row("WARM-UP", "let through" if one["released"] else "holds it back")
    yield from _waiting(one["outstanding"])
    if not one["outstanding"]:
        yield _row("NOW", "as wanted" if one["programmed"] else "not programmed")


def server(one: dict[str, Any]) -> Told:
    lasting = short(one["since_s"])
    if one["phase"] == "leading":
        yield f"{one['name']} leads, term {one['term']}, for {lasting}; its lease lasts {one['lease_s']:.1f} s more"
    elif one["leader"]:
        yield f"{one['name']} does not lead, {one['leader']} does; it has been {one['phase']} for {lasting}"
    else:
        yield f"{one['name']} does not lead, and knows of nobody who does; it has been {one['phase']} for {lasting}"
    yield ""
    if one["refused"]:
        yield _row("REFUSED", one["refused"])
    if one["paused"]:
        yield _row("PAUSED", f"by {one['paused']}; opens by: holdfast resume server")
    if one["refuses_store"]:
        yield _row("STORE", one["refuses_store"])
        yield from ([_row("", f"opens by: {one['opens']}")] if one["opens"] else [])
    if one["store_error"]:
        yield _row("STORE", one["store_error"])
    for name, able in sorted(one["followers"].items()):
        yield _row("FOLLOWS", f"{name}: {'could take over' if able else 'could not, or would not, take over'}")
    for decision in reversed(one["decisions"]):
        yield _row("BEFORE", f"{decision['time'][:19]}Z  {decision['sentence']}")


def _about(runtime: Path, name: str) -> dict[str, Any]:
    """What that server says of itself, with what was decided there about leadership."""
    electors = {one: role for one, role in workers(runtime).items() if one.rpartition("/")[2] == "elector"}
    abouts = {role: tell(runtime, one, "about") for one, role in electors.items()}
    said = {about["name"]: role for role, about in abouts.items()}
    if name not in said:
        here = f"here runs {', '.join(sorted(said))}" if said else "none runs here"
        raise click.ClickException(f"no server {name} runs on this machine ({here}); holdfast leader tells who leads")
    decisions = answer(runtime, said[name], Request("history", {"key": "leader", "last": 10}))
    return {**abouts[said[name]], "decisions": decisions}


def _waiting(outstanding: list[dict[str, Any]]) -> Told:
    for one in outstanding:
        yield _row("WAITS", f"{one['op']} {one['key']} for {short(one['since_s'])}, {one['why']}")
        if one["opens"]:
            yield _row("", f"opens by: {one['opens']}")


def _row(head: str, text: str) -> str:
    return f"{head:<10}{text}"


KINDS: dict[str, Callable[[dict[str, Any]], Told]] = {
    "backend": backend,
    "flow": explain_flow.told,
    "frontend": frontend,
    "host": host,
    "route": explain_route.told,
    "server": server,
    **dict.fromkeys(("endpoint", "migration", "network", "subnet", "health-check"), explain_inventory.told),
}


def _found(kind: str, name: str, to: str | None, seen_from: str | None, runtime: Path) -> dict[str, Any]:
    """All that is known of it, by everybody here who knows something."""
    found: dict[str, Any]
    if kind == "flow":
        found = explain_flow.about(runtime, name, to)
    elif kind == "server":
        found = _about(runtime, name)
    elif kind == "route":
        found = explain_route.about(runtime, name, seen_from)
    elif kind == "host":
        found = about_host(runtime, name, seen_from)
    elif kind in ("backend", "frontend"):
        found = tell(runtime, WORKER, "explain", kind=kind, name=name)
    else:
        found = explain_inventory.about(runtime, kind, name)
    if kind in ("backend", "frontend", "host"):
        found["inventory"] = explain_inventory.beside(runtime, kind, name)
    if kind in ("endpoint", "host"):
        found["observed"] = observed.beside(runtime, kind, name)
    if kind == "endpoint":
        found["agents"] = beside(runtime, name)
    return found


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name")
@click.argument("to", required=False)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@click.option("--host", "seen_from", help="For a host or route: whose agent is asked, where several run.")
@runtime_flag
def explain(kind: str, name: str, to: str | None, output: str, seen_from: str | None, runtime: Path) -> None:
    """Why is it as it is? What is wanted, what is programmed, and what stands in the way.

    For a flow, NAME is where it comes from (ADDRESS:PORT) and TO the VIP: an address and port, or a frontend.
    """
    if to is not None and kind != "flow":
        raise click.UsageError(f"{kind} {name} is explained by itself: {to!r} is one word too many")
    found = _found(kind, name, to, seen_from, runtime)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
        return
    for line in KINDS[kind](found):
        click.echo(line)
    for line in (*observed.told(found.get("observed", [])), *endpoint_here(found.get("agents", []))):
        click.echo(line)
    if found.get("inventory"):
        click.echo()
        for line in explain_inventory.told(found["inventory"]):
            click.echo(line)
