"""`holdfast get servers`: the servers of the fleet, read through any daemon of this machine or from etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.cli.common.control_socket import CannotTell, no_daemon, roles, runtime_folder
from holdfast.cli.common.etcd import EtcdOptions
from holdfast.cli.common.format import short
from holdfast.cli.common.terms import last_known, stale_term
from holdfast.runtime.control import Request, ask
from holdfast.store.servers import ServerSeen, read_servers


def read_all_servers(runtime: str | None, given: dict[str, str | None]) -> list[ServerSeen]:
    """Read the servers through a daemon of this machine, or from etcd."""
    options = EtcdOptions(dict(given))
    if given.get("endpoints") is None:
        folder = runtime_folder(runtime)
        try:
            if roles(folder):
                return read_servers_here(folder)
        except CannotTell:
            if not options.is_named:
                raise
    return options.query(lambda store: read_servers(store, options.region))


def read_servers_here(runtime: Path) -> list[ServerSeen]:
    """Return the servers, as the first daemon here that answers reads them from its store."""
    errors: list[str] = []
    for role in roles(runtime):
        answer = asyncio.run(ask(runtime / f"{role}.sock", Request("servers")))
        if not answer.error:
            return msgspec.convert(answer.result, list[ServerSeen])
        errors.append(answer.error)
    if not errors:
        raise no_daemon(runtime)
    raise CannotTell("; ".join([*dict.fromkeys(errors), *last_known(runtime)]))


def render(servers: Sequence[ServerSeen]) -> list[str]:
    """Render the table. Pure."""
    if not servers:
        return ["no server is registered"]
    width = max(6, *(len(one.name) for one in servers)) + 2
    lines = [f"{'SERVER':<{width}}{'ROLE':<10}{'TERM':>10}  {'VERSION':<12}{'LAG':>7}  CAN LEAD"]
    for one in servers:
        term = str(one.term) if one.term else "–"
        can = "yes" if one.able else f"no: {one.why_not}"
        lines.append(f"{one.name:<{width}}{one.role:<10}{term:>10}  {one.version:<12}{short(one.lag_s):>7}  {can}")
        if one.unrenewed_s:
            lines.append(f"{'':<{width}}{stale_term(one.term, one.unrenewed_s)}")
        lines += [f"{'':<{width}}paused: {pause}" for pause in one.pauses]
    return lines
