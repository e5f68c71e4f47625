"""Hosts, endpoints and unreadable values as the leader's status workers see them.

Shown by `holdfast status`, `holdfast get endpoints --orphaned` and `holdfast explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import send_command, workers_named
from holdfast.cli.common.format import DOCUMENTS, clock, counted, parts, print_document, row

AGENTS, ENDPOINTS = "agent-status", "endpoint-status"
_NAMED = 5
_COMPARING = "not known before the new leader has compared all reports"

Seen = Mapping[str, dict[str, Any]]
"""Summaries of the leader's status workers, by worker."""


def lines(seen: Seen, width: int | None = None) -> list[str]:
    """Return the rows HOSTS, ENDPOINTS and UNREADABLE of the status page."""
    rows = [*_hosts(seen.get(AGENTS)), *_endpoints(seen.get(ENDPOINTS)), *_unreadable(seen)]
    found = [line for head, *texts in rows for line in parts(head, *texts, width=width)]
    return ["", *found] if found else []


def is_compared(summary: Mapping[str, Any]) -> bool:
    """Return True if the leader has compared all reports with the inventory since its term began: counts before that
    are of nothing. A server of an older release does not say."""
    return bool(summary.get("passes", 1))


def _hosts(summary: dict[str, Any] | None) -> Iterator[list[str]]:
    if summary is not None and not is_compared(summary):
        yield ["HOSTS           –   ", _COMPARING]
    elif summary is not None:
        off = ", ".join(f"{one['host']} {one['by_s']:+.0f} s" for one in summary["clock_off"][:3])
        states = summary["states"]
        yield _total_row(
            "HOSTS",
            summary["total"],
            f"alive {states['alive']:,}",
            f"silent {states['silent']:,}",
            off and f"clock off: {off}",
        )


def _endpoints(summary: dict[str, Any] | None) -> Iterator[list[str]]:
    if summary is not None and not is_compared(summary):
        yield ["ENDPOINTS       –   ", _COMPARING]
    elif summary is not None:
        states = [f"{state} {count:,}" for state, count in summary["states"].items()]
        orphaned = f"without an agent {sum(summary['orphans'].values()):,}"
        yield _total_row("ENDPOINTS", summary["total"], *states, orphaned)


def _unreadable(seen: Seen) -> Iterator[list[str]]:
    bad = list(dict.fromkeys(one for summary in seen.values() for one in summary["bad"]))
    if bad:
        total = sum(summary["bad_total"] for summary in seen.values())  # no key is read by both workers
        yield _total_row("UNREADABLE", total, f"{bad[0]}, skipped", "see holdfast doctor")


def _total_row(head: str, total: int, *texts: str) -> list[str]:
    return [f"{head:<10}{total:>7,}   ", *texts]


def problems(seen: Seen) -> Iterator[tuple[str, str, str]]:
    """Yield subject, sentence and the command to inspect it."""
    agents = seen.get(AGENTS)
    if agents is not None:
        orphans = seen.get(ENDPOINTS, {}).get("orphans", {})
        for one in agents["silent"][:_NAMED]:
            host = one["host"]
            silent = f"agent silent for {clock(one['since_s'])} (lease expired {one['at']})"
            if host in orphans:
                silent += f"; routes to its {orphans[host]:,} endpoints stay, their status is unknown"
            yield host, silent, f"holdfast explain host {host}"
        if agents["silent_total"] > _NAMED:
            yield (
                "hosts",
                f"{agents['silent_total'] - _NAMED:,} more agents are silent",
                "holdfast get endpoints --orphaned",
            )
        if agents.get("own_clock_s"):
            by = f"{agents['own_clock_s']:+.0f} s"
            yield AGENTS, f"the clock of this server is {by} ahead of most hosts: check its NTP", "holdfast doctor"
    notices = seen.get(ENDPOINTS, {}).get("migrations", {})
    for one in notices.get("waiting", ())[:1]:
        failed = f"{one['endpoint']}: {one['error']}"
        sentence = f"the webhook was not notified of {notices['failing']:,} arrived live migrations; {failed}"
        yield ENDPOINTS, sentence, f"holdfast explain endpoint {one['endpoint']}"
    for name, summary in seen.items():
        if summary["behind"]["s"] > 60:
            behind = summary["behind"]
            backlog = f"{behind['revisions']:,} revisions, {behind['waiting']:,} objects waiting"
            yield name, f"status is behind by {clock(behind['s'])}: {backlog}", f"holdfast plan {name}"


def show_orphans(runtime: Path, output: str) -> None:
    """Print the endpoints that no agent programs, because their host has no live agent."""
    found = ask_leader(runtime, ENDPOINTS, "orphans")
    if output in DOCUMENTS:
        print_document(found, output)
        return
    for host, count in {} if output == "name" else found["hosts"].items():
        click.echo(f"{host:<24} {counted(count, 'endpoint')}, no live agent")
    for name in found["endpoints"]:
        click.echo(name)
    if found["total"] > len(found["endpoints"]):
        click.echo(f"… and {found['total'] - len(found['endpoints']):,} more")
    if not found["total"]:
        click.echo("no orphans: every endpoint is on a host with a live agent", err=True)


def ask_leader(runtime: Path, worker: str, command: str, **args: object) -> Any:
    """Send a command to the leader's worker of that name, where several servers run on this machine."""
    names = workers_named(runtime, worker)
    if not names:
        raise click.ClickException(f"no {worker} is running on this machine: run this where holdfast leader says")
    leading = [name for name in names if send_command(runtime, name, "about").get("leading")]
    return send_command(runtime, (leading or names)[0], command, **args)


def query_if_known(runtime: Path, kind: str, name: str) -> list[dict[str, Any]]:
    """Return the observed state of an endpoint or a host; empty if no leader runs here."""
    worker = AGENTS if kind == "host" else ENDPOINTS
    try:
        found: list[dict[str, Any]] = ask_leader(runtime, worker, "explain", name=name)
    except click.ClickException:
        return []
    return found


def explain_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    for one in found:
        agent = "its agent is alive" if one["agent_alive"] else "its agent is not alive"
        yield row("STATUS", f"{one['seen']} (on {one['host']}, {agent})")
        yield row("REPORT", (one["report"] or "none") + (f", rev {one['revision']:,}" if one["revision"] else ""))
        for change in one["outstanding"]:
            yield row("PENDING", f"{change['op']} for {clock(change['since_s'])}, {change['why']}")
        for migration in one.get("migrations", ()):
            yield row("WEBHOOK", f"{_notice(migration)}: {migration['from']} → {migration['to']}")


def _notice(migration: Mapping[str, Any]) -> str:
    """Format the state of the webhook call for one live migration."""
    if migration["notified"] is not None:
        return f"notified of the arrival at {migration['notified']}"
    if migration["held"]:
        return f"notice of the arrival is held: {migration['held']}"
    return f"not notified of the arrival: {migration['error']}" if migration["error"] else "waiting for the arrival"
