"""`holdfast explain host NAME`: what the servers know of a host, and what an agent here has programmed for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.agent.report.summary import SourceSummary
from holdfast.cli.common.control_socket import (
    CannotTell,
    answer,
    label,
    send_command,
    send_store_query,
    workers,
    workers_named,
)
from holdfast.cli.common.format import counted, release_rows, row, short
from holdfast.cli.daemons.agent import ROLE, WORKER
from holdfast.model.base.region import shown_source
from holdfast.runtime.control import Request

_OBJECTS = 20
DECISIONS = 10
SEARCHED = 5_000


def query(runtime: Path, name: str, seen_from: str | None) -> dict[str, Any]:
    """Ask a server and an agent of this machine about that host."""
    known = workers(runtime)
    electors = [one for one in known if one.rpartition("/")[2] == "elector"]
    agents = {label(role): one for one, role in known.items() if one.rpartition("/")[2] == WORKER}
    if seen_from is not None and seen_from not in agents and list(agents) != [ROLE]:
        raise CannotTell(
            f"no agent of {seen_from} is running here; running: {', '.join(agents) or 'none'}. Run this there."
        )
    worker = agents.get(seen_from or name) or next(iter(agents.values()), None)
    if not electors and worker is None:
        raise CannotTell("neither a server nor an agent is running here: run this where one is")
    fleet, unknown = _fleet_view(runtime, electors, name)
    if unknown is not None and worker is None:
        raise unknown
    agent = send_command(runtime, worker, "explain", kind="host", name=name) if worker else None
    keys = {one["key"].partition(" dev ")[0] for one in agent["objects"]} if agent else set()
    decisions = decisions_about(runtime, known[worker], keys) if worker else []
    error = unknown.message if unknown is not None else ""
    return {"name": name, "fleet": fleet, "fleet_error": error, "agent": agent, "decisions": decisions}


def _fleet_view(
    runtime: Path, electors: Sequence[str], name: str
) -> tuple[dict[str, Any] | None, click.ClickException | None]:
    """Return what a server here reads of the host from the store, or why it cannot."""
    if not electors:
        return None, None
    try:
        return send_store_query(runtime, electors[0], "host", name=name), None
    except click.ClickException as error:
        return None, error


def is_unknown(found: Mapping[str, Any]) -> bool:
    """Return whether store, inventory and agent all answered, and none of them knows the host."""
    fleet, agent = found["fleet"], found["agent"]
    if fleet is None or fleet["known"] or fleet["alive"] or fleet["reported"] or fleet["unreadable"]:
        return False
    if found.get("inventory") or found.get("observed") or found["decisions"]:
        return False
    return agent is None or not (agent["self"] or agent["peer"] or agent["objects"] or agent["endpoints"])


def decisions_about(runtime: Path, role: str, keys: set[str]) -> list[dict[str, Any]]:
    """Return the last decisions of that daemon about these keys."""
    if not keys:
        return []
    found = answer(runtime, role, Request("history", {"key": None, "last": SEARCHED}))
    return [one for one in found if one["key"] in keys][-DECISIONS:]


def lines(one: dict[str, Any]) -> Iterator[str]:
    yield _headline(one)
    yield ""
    if one["fleet"] is not None:
        yield from _fleet(one["fleet"])
    if one.get("fleet_error"):
        yield row("FLEET", f"not known: {one['fleet_error']}")
    if one["agent"] is not None:
        yield from _agent(one["agent"])
    yield from decision_rows(one["decisions"])


def decision_rows(decisions: list[dict[str, Any]]) -> Iterator[str]:
    for one in reversed(decisions):
        yield row("HISTORY", f"{one['time'][:19]}Z  {one['op']} {one['key']}: {one['sentence']}")


def _headline(one: dict[str, Any]) -> str:
    name, fleet, agent = one["name"], one["fleet"], one["agent"]
    if agent is not None and agent["self"]:
        if agent.get("routing") == "bgp":
            return f"{name} is this host; its agent programs its own endpoints, and BGP distributes their routes."
        return f"{name} is this host; its agent has {counted(agent['counts'].get('peers', 0), 'peer')}."
    if fleet is not None and not fleet["known"]:
        return f"{name} is not in the store: it is not in the inventory, or not synced yet."
    if agent is not None and agent["peer"] is not None:
        return f"{name} is a peer of {agent['host']}, reached by {', '.join(agent['peer']['reached']) or 'nothing'}."
    if agent is not None:
        return f"{name} is no peer of {agent['host']}: nothing of it is wanted or programmed there."
    return f"{name} is a host of this fleet."


def _fleet(fleet: Mapping[str, Any]) -> Iterator[str]:
    if fleet["known"]:
        addresses = ", ".join(fleet["addresses"]) or "no address"
        yield row("STORE", f"{addresses}; {counted(fleet['endpoints'], 'endpoint')}")
    yield row("AGENT", _last_report(fleet) + ("" if fleet["alive"] else "; routes to its endpoints stay"))
    report = fleet["report"]
    if report is not None:
        counts = ", ".join(f"{count:,} {state}" for state, count in sorted(report.get("counts", {}).items()))
        routing = f", routing {report['routing']}" if report.get("routing") else ""
        yield row("COUNTS", f"version {report['version']}{routing}, {counts or 'no counts'}")
        for gate in report.get("gates", ()):
            scope = f" ({gate['scope']})" if gate.get("scope") else ""
            yield row("GATE", f"{gate['gate']}{scope} since {gate['since']}: {gate['reason']}")
            yield from ([row("", f"To release: {gate['opens']}")] if gate.get("opens") else [])
        for trouble in report.get("troubles", ())[:_OBJECTS]:
            yield row(trouble["state"].upper(), f"{trouble['key']}: {trouble['reason']}")
    for sentence in fleet["unreadable"]:
        yield row("UNREADABLE", sentence)


def _last_report(fleet: Mapping[str, Any]) -> str:
    state = "alive" if fleet["alive"] else "silent"
    if fleet["reported"]:
        return f"{state}, last report {fleet['reported']} by its own clock"
    unclear = fleet["alive"] or fleet["unreadable"]
    return f"{state}, {'the time of its last report cannot be read' if unclear else 'no report so far'}"


def _agent(agent: Mapping[str, Any]) -> Iterator[str]:
    for one in agent["sources"]:
        source = msgspec.convert(one, SourceSummary)
        complete = f"{shown_source(source.name)}: complete at revision {source.revision or 0:,}"
        yield row("SOURCE", complete if source.revision is not None else source.sentence)
    if agent["self"] and agent["registered"] is False:
        yield row("INVENTORY", "this host is not in the inventory. To add it: holdfast apply")
    for endpoint, state in agent["endpoints"].items():
        migration = f", {agent['arrivals'][endpoint]}" if endpoint in agent.get("arrivals", {}) else ""
        yield row("ENDPOINT", f"{endpoint}: {state}{migration}")
    for one in agent["objects"][:_OBJECTS]:
        endpoint = f" of {one['endpoint']}" if one["endpoint"] else ""
        yield from object_rows(one, f"{one['key']}{endpoint}")
    if len(agent["objects"]) > _OBJECTS:
        yield row("", f"… and {len(agent['objects']) - _OBJECTS:,} more (-o json shows all)")
    for sentence in agent["conflicts"]:
        yield row("CONFLICT", sentence)


def object_rows(one: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield the rows of one kernel object: its desired and actual state, and what releases it if it is held."""
    yield row("OBJECT", f"{name}: {_object_state(one)}")
    yield from release_rows([one["waiting"]] if one["waiting"] else [])


def _object_state(one: Mapping[str, Any]) -> str:
    outstanding = one["waiting"]
    wanted = (
        f"wanted by {shown_source(one['source'])} since revision {one['revision']:,}"
        if one["wanted"]
        else "no longer wanted"
    )
    migration = f"; its workload {one['arrival']}" if one.get("arrival") else ""
    if outstanding is None:
        return f"{wanted}, {'not programmed' if one['missing'] else 'programmed'}{migration}"
    change = f"{outstanding['op']} outstanding for {short(outstanding['since_s'])}"
    return f"{wanted}; {change}, {outstanding['why']}{migration}"


def query_endpoint(runtime: Path, endpoint: str) -> list[dict[str, Any]]:
    """Ask the agents here about an endpoint that is on their host, or migrates to it."""
    found: list[dict[str, Any]] = []
    for one in workers_named(runtime, WORKER):
        with contextlib.suppress(click.ClickException):  # an agent that cannot start, or of an older release
            found.append(send_command(runtime, one, "explain", kind="endpoint", name=endpoint))
    return [one for one in found if one["endpoints"]]


def endpoint_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    for one in found:
        for endpoint in one["endpoints"]:
            migration = f", {endpoint['arrival']}" if endpoint["arrival"] else ""
            yield row("AGENT", f"on {one['host']}: {endpoint['state']}{migration}")
            for thing in endpoint.get("objects", ()):
                yield from object_rows(thing, thing["key"])
