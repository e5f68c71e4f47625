"""`holdfast explain KIND NAME`: asks every daemon here that knows the object, and prints what they answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.completion import complete_name
from holdfast.cli.common.control_socket import runtime_flag
from holdfast.cli.common.format import DOCUMENTS, LABEL, fitted, output_flag, print_document, terminal_width, watchable
from holdfast.cli.explain import balancer, host, inventory, route, running, schema, server
from holdfast.cli.status import observed

SCHEMA = "schema"
_ROW = re.compile(rf"(?=.{{{LABEL - 1}}} \S)(?:[A-Z]| )")
"""A row with a label, or the next line of one."""
KINDS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "backend": balancer.backend,
    "flow": balancer.flow,
    "frontend": balancer.frontend,
    "gate": running.gate,
    "host": host.lines,
    "intent": running.intent,
    "peer": host.lines,
    "route": route.lines,
    "server": server.lines,
    "worker": running.worker,
    **dict.fromkeys(("endpoint", "migration", "network", "policy", "subnet", "health-check"), inventory.lines),
}


_RUNNING = {"gate": running.query_gate, "intent": running.query_intent, "worker": running.query_worker}


def query(kind: str, name: str, to: str | None, seen_from: str | None, runtime: Path) -> dict[str, Any]:
    """Return what `-o json` prints."""
    if kind == "flow":
        found = balancer.query_flow(runtime, name, to)
    elif kind == "server":
        found = server.query(runtime, name)
    elif kind == "route":
        found = route.query(runtime, name, seen_from)
    elif kind in _RUNNING:
        found = _RUNNING[kind](runtime, name)
    elif kind in ("host", "peer"):
        found = host.query(runtime, name, seen_from)
    elif kind in ("backend", "frontend"):
        found = balancer.query(runtime, kind, name)
    elif kind == "endpoint":
        found = _endpoint(runtime, name)
    else:
        found = inventory.query(runtime, kind, name)
    if kind in ("backend", "frontend", "host"):
        found["inventory"] = inventory.query_if_known(runtime, kind, name)
    if kind in ("endpoint", "host"):
        found["observed"] = observed.query_if_known(runtime, kind, name)
    if kind == "host" and host.is_unknown(found):
        raise click.ClickException(
            f"no host {name}: neither inventory nor store has it, and nothing of it is programmed here. "
            "To list the hosts: holdfast get hosts"
        )
    return found


def _endpoint(runtime: Path, name: str) -> dict[str, Any]:
    """On a host without a server, what its agent knows is all."""
    agents = host.query_endpoint(runtime, name)
    known = (
        inventory.query_if_known(runtime, "endpoint", name) if agents else inventory.query(runtime, "endpoint", name)
    )
    return {**(known or {"name": name}), "agents": agents}


def _kind(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    """Return a kind in the singular; the plural, as `get` shows it, is taken as well."""
    known = [*KINDS, SCHEMA]
    found = next((one for one in known if given in (one, f"{one}s")), None) or ("policy" if given == "policies" else "")
    if not found:
        raise click.UsageError(f"unknown kind {given!r}: name one of {', '.join(sorted(known))}")
    return found


@click.command()
@click.argument("kind", callback=_kind, metavar="KIND")
@click.argument("name", shell_complete=complete_name)
@click.argument("to", required=False)
@output_flag
@click.option("--host", "seen_from", help="For a host or route: ask the agent of this host, where several run.")
@runtime_flag
@watchable
def explain(kind: str, name: str, to: str | None, output: str, seen_from: str | None, runtime: Path) -> None:
    """Explain the state of one object: what is wanted, what is programmed, and what is between them.

    KIND is backend, endpoint, flow, frontend, gate, health-check, host, intent, migration, network, peer, policy,
    route, server, subnet or worker; or schema, with the path of a section or field of the configuration as NAME, such
    as server.ttl. A gate is named WORKER/GATE, an intent as `holdfast get intents` shows it, in quotes. For a flow,
    NAME is its source (ADDRESS:PORT) and TO the VIP: an address and port, or a frontend. In OpenStack, NAME may be the
    id of a port, security group or subnet.

    What no daemon of this machine knows is answered from the reports in the store, or with the machine to ask.
    """
    if to is not None and kind != "flow":
        raise click.UsageError(f"unexpected argument {to!r}: only a flow takes TO")
    if kind == SCHEMA:
        topic = schema.topic(name)
        if output in DOCUMENTS:
            print_document(topic, output)
        else:
            _print(schema.lines(topic))
        return
    found = query(kind, name, to, seen_from, runtime)
    if output in DOCUMENTS:
        print_document(found, output)
        return
    _print(_page(kind, name, found))


def _print(page: Iterator[str]) -> None:
    width = terminal_width()
    for line in page:
        # Only rows with a label have their text at a column of its own.
        indent = LABEL if _ROW.match(line) else 0
        for part in fitted(line, width, indent):
            click.echo(part)


def _page(kind: str, name: str, found: dict[str, Any]) -> Iterator[str]:
    yield from KINDS[kind](found) if kind != "endpoint" or "changes" in found else [f"Endpoint {name}:"]
    yield from observed.explain_lines(found.get("observed", []))
    yield from host.endpoint_lines(found.get("agents", []))
    if found.get("inventory"):
        yield ""
        yield from inventory.lines(found["inventory"])
