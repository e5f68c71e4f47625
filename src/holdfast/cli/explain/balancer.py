"""`holdfast explain backend | frontend | flow`: answers of a running balancer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.balancer import VIPS_WORKER
from holdfast.cli.common.control_socket import CannotTell, ask_any, send_command, workers_named
from holdfast.cli.common.format import counted, release_rows, row, short
from holdfast.cli.daemons.balancer import WORKER, announced, paused, pool_role


def query(runtime: Path, kind: str, name: str) -> dict[str, Any]:
    """Ask the balancer here; where none runs, return what the balancers report to the store."""
    if not workers_named(runtime, VIPS_WORKER):
        return {"name": name, "kind": kind, "reports": _reports(runtime, kind, name)}
    found: dict[str, Any] = send_command(runtime, WORKER, "explain", kind=kind, name=name)
    return found


def _reports(runtime: Path, kind: str, name: str) -> list[dict[str, Any]]:
    """Return the reports of the fleet's balancers, as any daemon here reads them; for a frontend of those with it."""
    found: list[dict[str, Any]] = ask_any(runtime, "balancers")
    if not found:
        raise CannotTell(
            f"no balancer runs here or reports to the store: run holdfast explain {kind} {name} where one is"
        )
    return [one for one in found if kind != "frontend" or name in one["frontends"]]


def _report_lines(one: dict[str, Any]) -> Iterator[str]:
    """Yield what is known of a frontend or backend where no balancer runs."""
    kind, name, reports = one["kind"], one["name"], one["reports"]
    if kind == "frontend":
        up = sum(report["frontends"][name] == "up" for report in reports)
        is_up = f"{name} is up on {up} of {counted(len(reports), 'balancer')}."
        yield is_up if reports else f"No balancer that reports serves {name}."
    else:
        yield f"{name}: only balancers probe backends, and none runs on this machine."
    yield ""
    for report in reports:
        state = f"reports {report['frontends'][name]}" if kind == "frontend" else "reports to the store"
        yield row("BALANCER", f"{report['name']} {state}. On it: holdfast explain {kind} {name}")


def query_flow(runtime: Path, source: str, to: str | None) -> dict[str, Any]:
    if to is None:
        raise click.UsageError("the VIP is missing: holdfast explain flow SRC:PORT VIP (ADDRESS:PORT, or a frontend)")
    if not workers_named(runtime, VIPS_WORKER):
        names = ", ".join(one["name"] for one in ask_any(runtime, "balancers")) or "its balancer"
        raise CannotTell(f"no balancer runs here: run holdfast explain flow {source} {to} on {names}")
    found: dict[str, Any] = send_command(runtime, WORKER, "flow", source=source, to=to)
    return found


def backend(one: dict[str, Any]) -> Iterator[str]:
    if "reports" in one:
        yield from _report_lines(one)
        return
    yield f"{one['name']} ({one['address']}) has been {one['state']} for {short(one['since_s'])}: {one['why']}"
    yield ""
    for check, found in one["checks"].items():
        against = f", {found['against']} results in a row against that" if found["against"] else ""
        error = f"; last probe: {found['error'].removeprefix(f'{check}: ')}" if found.get("error") else ""
        yield row("CHECK", f"{check}: {found['verdict']}{against}; probed at the {found['pace']} interval{error}")
    for intent in one["intents"]:
        yield row("INTENT", _intent(intent, f" in {intent['frontend']}" if intent.get("frontend") else ""))
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


def _intent(intent: dict[str, Any], where: str) -> str:
    weight = f" {intent['weight']}" if intent["weight"] is not None else ""
    pool = f" of pool {intent['pool']}" if intent.get("pool") else ""
    until = f" until {intent['until']}" if intent["until"] else ""
    return f"{intent['what']}{weight}{pool}{where}{until} by {intent['who']}: “{intent['why']}”"


def frontend(one: dict[str, Any]) -> Iterator[str]:
    if "reports" in one:
        yield from _report_lines(one)
        return
    panic = ", panic: no pool has its share of healthy weight, so the first serves with all" if one["panic"] else ""
    yield f"{one['name']} ({one['vip']}) is {one['state']}{panic}"
    yield ""
    if one.get("paused"):
        yield row("INTENT", paused(one["paused"]))
        yield row("", f"To release: holdfast resume frontend {one['name']}")
    for intent in one.get("intents", ()):
        yield row("INTENT", _intent(intent, f" of {intent['backend']}" if intent["backend"] else ""))
    for index, pool in enumerate(one["pools"]):
        for member in pool:
            asked = "" if member.get("asked") is None else f", set to {member['asked']} by an operator"
            weights = f"weight {member['configured']}{asked}, wanted now {member['wanted']}, {_programmed(member)}"
            backend = f"{member['backend']} ({member['address']}) {member['state']}"
            yield row(f"POOL {index}", f"{pool_role(one, index)}: {backend}, {weights}")
    for each in one.get("leaving", ()):
        yield row("LEAVING", f"{each['address']}, no longer configured, programmed {each['programmed']}")
    if later := one.get("fail_back"):
        sentence = f"pool {later['pool']} can serve again, and takes over in {short(later['in_s'])} (fail-back-delay)"
        yield row("FAIL-BACK", sentence)
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
    if "spread" in one:
        yield from _spread(vip, one["spread"])
        return
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
    if owner := one.get("stands_in_for"):
        sentence = f"the bucket is {owner['backend']}'s when that has its full weight ({owner['base']})"
        yield row("STANDS IN", f"{sentence}; its weight is {owner['weight']} now")
    if one["established"] and one["established"] != one["backend"]:
        yield row("CONNTRACK", "the table has changed since the flow was opened; connection tracking keeps its backend")


def _spread(vip: str, servers: list[dict[str, Any]]) -> Iterator[str]:
    yield f"a new flow through {vip} goes to one of these; the dataplane does not tell which"
    yield ""
    for one in servers:
        yield row("BACKEND", f"{one['backend']}, weight {one['weight']}, {_buckets(one)}")


def _programmed(entry: dict[str, Any]) -> str:
    weight = "not programmed" if entry["programmed"] is None else f"programmed {entry['programmed']}"
    return f"{weight}, {_buckets(entry)}" if "buckets" in entry else weight


def _buckets(one: dict[str, Any]) -> str:
    return f"{one['buckets']:,} of {one['of']:,} buckets ({one['buckets'] / one['of']:.1%} of new flows)"


def _outstanding(changes: list[dict[str, Any]]) -> Iterator[str]:
    for one in changes:
        yield row("PENDING", f"{one['op']} {one['key']} for {short(one['since_s'])}, {one['why']}")
        yield from release_rows([one])
