"""`holdfast explain host NAME`: what the fleet knows of it (a server here answers), and what it is to an agent here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.agent.report.summary import SourceSummary
from holdfast.cli.common.control_socket import answer, label, tell, workers
from holdfast.cli.common.format import short
from holdfast.cli.daemons.agent import ROLE, WORKER
from holdfast.runtime.control import Request

Told = Iterator[str]
_OBJECTS = 20
_DECISIONS = 10
_LOOKED_THROUGH = 5_000


def about_host(runtime: Path, name: str, seen_from: str | None) -> dict[str, Any]:
    """What can be found out here about that host."""
    known = workers(runtime)
    electors = [one for one in known if one.rpartition("/")[2] == "elector"]
    agents = {label(role): one for one, role in known.items() if one.rpartition("/")[2] == WORKER}
    if seen_from is not None and seen_from not in agents and list(agents) != [ROLE]:
        raise click.ClickException(f"no agent of {seen_from} runs here; there are: {', '.join(agents) or 'none'}")
    asked = agents.get(seen_from or name) or next(iter(agents.values()), None)
    if not electors and asked is None:
        raise click.ClickException("neither a server nor an agent runs here, and only they know hosts")
    fleet = tell(runtime, electors[0], "host", name=name) if electors else None
    agent = tell(runtime, asked, "explain", kind="host", name=name) if asked else None
    decisions = _decisions(runtime, known[asked], agent["objects"]) if asked and agent else []
    return {"name": name, "fleet": fleet, "agent": agent, "decisions": decisions}


def _decisions(runtime: Path, role: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was last decided there about objects of that host."""
    keys = {one["key"].partition(" dev ")[0] for one in objects}
    found = answer(runtime, role, Request("history", {"key": None, "last": _LOOKED_THROUGH}))
    return [one for one in found if one["key"] in keys][-_DECISIONS:]


def host(one: dict[str, Any]) -> Told:
    yield _headline(one)
    yield ""
    if one["fleet"] is not None:
        yield from _fleet(one["fleet"])
    if one["agent"] is not None:
        yield from _agent(one["agent"])
    for decision in reversed(one["decisions"]):
        yield _row("BEFORE", f"{decision['time'][:19]}Z  {decision['op']} {decision['key']}: {decision['sentence']}")


def _headline(one: dict[str, Any]) -> str:
    name, fleet, agent = one["name"], one["fleet"], one["agent"]
    if agent is not None and agent["self"]:
        return f"{name} is this host; its agent keeps {agent['counts'].get('peers', 0):,} peers."
    if fleet is not None and not fleet["known"]:
        return f"{name} is not in the store: the inventory does not know it, or has not been synced."
    if agent is not None and agent["peer"] is not None:
        return f"{name} is a peer of {agent['host']}, reached by {', '.join(agent['peer']['reached']) or 'nothing'}."
    if agent is not None:
        return f"{name} is nothing to {agent['host']}: nothing of it is wanted or programmed there."
    return f"{name} is a host of this fleet."


def _fleet(fleet: Mapping[str, Any]) -> Told:
    if fleet["known"]:
        yield _row("KNOWN", f"{', '.join(fleet['addresses']) or 'no address'}; {fleet['endpoints']:,} endpoints")
    last = f"last report {fleet['reported']} by its own clock" if fleet["reported"] else "it never reported"
    yield _row("AGENT", f"alive, {last}" if fleet["alive"] else f"silent ({last}); routes to its endpoints stay")
    report = fleet["report"]
    if report is not None:
        counts = ", ".join(f"{count:,} {state}" for state, count in sorted(report.get("counts", {}).items()))
        yield _row("REPORTS", f"version {report['version']}, {counts or 'no counts'}")
        for gate in report.get("gates", ()):
            scope = f" ({gate['scope']})" if gate.get("scope") else ""
            yield _row("GATE", f"{gate['gate']}{scope} since {gate['since']}: {gate['reason']}")
            yield from ([_row("", f"opens by: {gate['opens']}")] if gate.get("opens") else [])
        for trouble in report.get("troubles", ())[:_OBJECTS]:
            yield _row(trouble["state"].upper(), f"{trouble['key']}: {trouble['reason']}")
    for sentence in fleet["unreadable"]:
        yield _row("BAD", sentence)


def _agent(agent: Mapping[str, Any]) -> Told:
    for source in agent["sources"]:
        keeping = msgspec.convert(source, SourceSummary)
        complete = f"{keeping.name}: complete at revision {keeping.revision or 0:,}"
        yield _row("SOURCE", complete if keeping.revision is not None else keeping.sentence)
    if agent["self"] and agent["registered"] is False:
        yield _row("UNKNOWN", "the inventory does not know this host: holdfast apply, with it in the file")
    for endpoint, state in agent["endpoints"].items():
        arrives = f", {agent['arrivals'][endpoint]}" if endpoint in agent.get("arrivals", {}) else ""
        yield _row("ENDPOINT", f"{endpoint}: {state}{arrives}")
    for one in agent["objects"][:_OBJECTS]:
        yield _row("OBJECT", f"{one['key']}{_endpoint(one)}: {object_state(one)}")
        waiting = one["waiting"]
        if waiting and waiting["opens"]:
            yield _row("", f"opens by: {waiting['opens']}")
    if len(agent["objects"]) > _OBJECTS:
        yield _row("", f"… and {len(agent['objects']) - _OBJECTS:,} more (-o json shows all)")
    for sentence in agent["conflicts"]:
        yield _row("DISPUTE", sentence)


def _endpoint(one: Mapping[str, Any]) -> str:
    return f" of {one['endpoint']}" if one["endpoint"] else ""


def object_state(one: Mapping[str, Any]) -> str:
    """Who wants it, whether it is there, and what stands between."""
    waiting = one["waiting"]
    wanted = f"wanted by {one['source']} since revision {one['revision']:,}" if one["wanted"] else "not wanted any more"
    arrives = f"; its workload {one['arrival']}" if one.get("arrival") else ""
    if waiting is None:
        return f"{wanted}, {'not programmed' if one['missing'] else 'programmed'}{arrives}"
    return f"{wanted}; {waiting['op']} waits {short(waiting['since_s'])}: {waiting['why']}{arrives}"


def beside(runtime: Path, endpoint: str) -> list[dict[str, Any]]:
    """What the agents here say of an endpoint that is on their host, or arrives there."""
    found: list[dict[str, Any]] = []
    for one in workers(runtime):
        if one.rpartition("/")[2] == WORKER:
            with contextlib.suppress(click.ClickException):  # one that cannot begin, or of an older release
                found.append(tell(runtime, one, "explain", kind="endpoint", name=endpoint))
    return [one for one in found if one["endpoints"]]


def endpoint_here(found: list[dict[str, Any]]) -> Told:
    for one in found:
        for endpoint in one["endpoints"]:
            arrives = f", {endpoint['arrival']}" if endpoint["arrival"] else ""
            yield _row("AGENT", f"on {one['host']}: {endpoint['state']}{arrives}")


def _row(head: str, text: str) -> str:
    return f"{head:<10}{text}"
