"""`holdfast explain route ADDRESS`: where packets to that address go from this host, and through which objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import CannotTell, answer, resolve, send_command, workers
from holdfast.cli.common.format import row
from holdfast.cli.daemons.agent import WORKER, worker_of
from holdfast.cli.explain.host import DECISIONS, SEARCHED, decision_rows, decisions_about, object_rows
from holdfast.model.base.region import shown_source
from holdfast.runtime.control import Request


def query(runtime: Path, address: str, seen_from: str | None) -> dict[str, Any]:
    """Ask an agent here to trace that address, and add the last decisions about the objects on the path."""
    known = workers(runtime)
    agents = [one for one in known if one.rpartition("/")[2] == WORKER]
    if not agents and seen_from is None:
        raise CannotTell(f"no agent is running here: run holdfast explain route {address} on the host in question")
    if len(agents) > 1 and seen_from is None:
        names = ", ".join(sorted(one.rpartition("/")[0] for one in agents))
        raise click.UsageError(f"several agents run here, each with routes of its own: name one with --host: {names}")
    worker = resolve(worker_of(runtime, seen_from), known)
    found: dict[str, Any] = send_command(runtime, worker, "explain", kind="route", name=address)
    trace = found["trace"]
    if trace is None:
        return {**found, "name": address, "decisions": _former(runtime, known[worker], address)}
    keys = {one["key"].partition(" dev ")[0] for one in trace["steps"]}
    return {**found, "name": address, "decisions": decisions_about(runtime, known[worker], keys)}


def _former(runtime: Path, role: str, address: str) -> list[dict[str, Any]]:
    """Return the last decisions about routes that led to an address to which none leads any more."""
    found = answer(runtime, role, Request("history", {"key": None, "last": SEARCHED}))
    wanted = ip_interface(address).network
    return [one for one in found if _covers(str(one["key"]), wanted)][-DECISIONS:]


def _covers(key: str, wanted: IPv4Network | IPv6Network) -> bool:
    """Return True for the key of a route, such as `route 10.28.7.0/26 dev tap1`, that leads to all of `wanted`."""
    kind, _, rest = key.partition(" ")
    try:
        prefix = ip_network(rest.partition(" ")[0])
    except ValueError:
        return False
    if kind != "route" or prefix.version != wanted.version:
        return False
    # The default route would cover everything, and is never ours.
    return prefix.prefixlen <= wanted.prefixlen and wanted.network_address in prefix


def lines(one: dict[str, Any]) -> Iterator[str]:
    trace = one["trace"]
    if trace is None:
        yield from _gone(one)
        return
    in_sync = all(step["wanted"] and not step["missing"] and not step["waiting"] for step in trace["steps"])
    condition = "" if in_sync else " once all of these objects are in sync"
    yield f"From {one['host']}, packets to {one['name']} go {trace['leads']}{condition}."
    yield ""
    yield row("ROUTE", f"{trace['prefix']}{_owner(trace)}")
    for step in trace["steps"]:
        yield from object_rows(step, step["key"])
    yield from decision_rows(one["decisions"])


def _gone(one: dict[str, Any]) -> Iterator[str]:
    """Yield what is known of an address to which no route of ours leads."""
    last = next((each for each in reversed(one["decisions"]) if each["outcome"] == "applied"), None)
    if last is None or last["op"] != "delete":
        yield f"{one['host']} has no route of ours to {one['name']}: no known endpoint has this address."
        return
    yield f"Not in the kernel of {one['host']}, and not wanted. Deleted {last['time'][11:19]}Z by its agent."
    yield ""
    yield row("ROUTE", str(last["key"]).removeprefix("route "))
    if last.get("old"):
        source, _, revision = str(last["old"]).rpartition("@")
        yield row("WANTED", f"by nobody any more; before that by {shown_source(source)}, revision {int(revision):,}")
    yield row("BECAUSE", str(last["sentence"]))
    yield from decision_rows(one["decisions"])


def _owner(trace: Mapping[str, Any]) -> str:
    if not trace["host"]:
        return ", found in the kernel; no source has claimed it since the agent lost its journal"
    endpoint = f"endpoint {trace['endpoint']} on " if trace["endpoint"] else ""
    return f" belongs to {endpoint}host {trace['host']}"
