"""What the fleet says of itself, on `holdfast status` and `holdfast orphans`: hosts, endpoints, unreadable values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import runtime_flag, tell, workers
from holdfast.cli.common.format import clock

AGENTS, ENDPOINTS = "agent-status", "endpoint-status"
_NAMED = 5

Seen = Mapping[str, dict[str, Any]]
"""What the status workers of the server that leads say, by worker."""


def lines(seen: Seen) -> list[str]:
    """HOSTS, ENDPOINTS and BAD KEYS."""
    found = [*_hosts(seen.get(AGENTS)), *_endpoints(seen.get(ENDPOINTS)), *_bad(seen)]
    return ["", *found] if found else []


def _hosts(said: dict[str, Any] | None) -> Iterator[str]:
    if said is not None:
        off = ", ".join(f"{one['host']} {one['by_s']:+.0f} s" for one in said["clock_off"][:3])
        states = said["states"]
        yield _row(
            "HOSTS",
            said["total"],
            f"alive {states['alive']:,}   silent {states['silent']:,}",
            off and f"clock off: {off}",
        )


def _endpoints(said: dict[str, Any] | None) -> Iterator[str]:
    if said is not None:
        states = "   ".join(f"{state} {count:,}" for state, count in said["states"].items())
        yield _row("ENDPOINTS", said["total"], states, f"without an agent {sum(said['orphans'].values()):,}")


def _bad(seen: Seen) -> Iterator[str]:
    bad = list(dict.fromkeys(one for said in seen.values() for one in said["bad"]))
    if bad:
        total = sum(said["bad_total"] for said in seen.values())  # no key is read by both
        yield _row("BAD KEYS", total, f"{bad[0]}, skipped", "holdfast doctor")


def _row(head: str, total: int, *parts: str) -> str:
    return f"{head:<10}{total:>7,}   {'   '.join(filter(None, parts))}"


def troubles(seen: Seen) -> Iterator[tuple[str, str, str]]:
    """Who, what is wrong, and where to look."""
    agents = seen.get(AGENTS)
    if agents is not None:
        orphans = seen.get(ENDPOINTS, {}).get("orphans", {})
        for one in agents["silent"][:_NAMED]:
            host = one["host"]
            gone = f"agent silent {clock(one['since_s'])} (lease gone {one['at']})"
            rest = (
                f"; routes to its {orphans[host]:,} endpoints stay, their status is unknown" if host in orphans else ""
            )
            yield host, gone + rest, f"holdfast explain host {host}"
        if agents["silent_total"] > _NAMED:
            yield "hosts", f"{agents['silent_total'] - _NAMED:,} more agents are silent", "holdfast orphans"
    untold = seen.get(ENDPOINTS, {}).get("migrations", {})
    for one in untold.get("waiting", ())[:1]:
        what = f"{untold['failing']:,} arrivals of live migrations are not told, {one['endpoint']}: {one['error']}"
        yield ENDPOINTS, what, f"holdfast explain endpoint {one['endpoint']}"
    for name, said in seen.items():
        if said["behind"]["s"] > 60:
            behind = said["behind"]
            far = f"{behind['revisions']:,} revisions, {behind['waiting']:,} objects waiting"
            yield name, f"status is behind by {clock(behind['s'])}: {far}", f"holdfast plan {name}"


@click.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@runtime_flag
def orphans(output: str, runtime: Path) -> None:
    """Endpoints that nobody will program: their host has no live agent."""
    found = ask_leader(runtime, ENDPOINTS, "orphans")
    if output == "json":
        click.echo(json.dumps(found, indent=2))
        return
    for host, count in found["hosts"].items():
        click.echo(f"{host:<24} {count:>7,} endpoints, no live agent")
    for name in found["endpoints"]:
        click.echo(name)
    if found["total"] > len(found["endpoints"]):
        click.echo(f"… and {found['total'] - len(found['endpoints']):,} more")
    if not found["total"]:
        click.echo("every endpoint is on a host with a live agent", err=True)


def ask_leader(runtime: Path, worker: str, command: str, **args: object) -> Any:
    """The answer of that worker of the server that leads, where several servers run on this machine."""
    names = [name for name in workers(runtime) if name.rpartition("/")[2] == worker]
    if not names:
        raise click.ClickException(f"no {worker} runs on this machine; holdfast leader tells who leads")
    leading = [name for name in names if tell(runtime, name, "about").get("leading")]
    return tell(runtime, (leading or names)[0], command, **args)


def beside(runtime: Path, kind: str, name: str) -> list[dict[str, Any]]:
    """What is observed of an endpoint or a host, for `holdfast explain`; nothing where no leader runs here."""
    worker = AGENTS if kind == "host" else ENDPOINTS
    try:
        found: list[dict[str, Any]] = ask_leader(runtime, worker, "explain", name=name)
    except click.ClickException:
        return []
    return found


def told(found: list[dict[str, Any]]) -> Iterator[str]:
    for one in found:
        agent = "its agent is alive" if one["agent_alive"] else "its agent is not alive"
        yield f"{'STATUS':<10}{one['seen']} (on {one['host']}, {agent})"
        said = one["report"] or "nothing"
        yield f"{'REPORT':<10}{said}" + (f", rev {one['revision']:,}" if one["revision"] else "")
        for waits in one["outstanding"]:
            yield f"{'WAITS':<10}{waits['op']} for {clock(waits['since_s'])}, {waits['why']}"
        for move in one.get("migrations", ()):
            yield f"{'WEBHOOK':<10}{_notice(move)}: {move['from']} → {move['to']}"


def _notice(move: Mapping[str, Any]) -> str:
    """Whether the webhook knows that it has arrived."""
    if move["told"] is not None:
        return f"told of the arrival {move['told']}"
    return f"not told of the arrival yet, {move['error']}" if move["error"] else "waits for the arrival"
