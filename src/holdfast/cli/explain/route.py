"""`holdfast explain route ADDRESS`: where packets for it go from this host, by which objects of the kernel, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import answer, tell, workers
from holdfast.cli.daemons.agent import worker_of
from holdfast.cli.explain.host import object_state
from holdfast.runtime.control import Request

_DECISIONS = 10
_LOOKED_THROUGH = 5_000


def about(runtime: Path, address: str, seen_from: str | None) -> dict[str, Any]:
    """What this host's agent says about it, with what was last decided about the objects on the way."""
    worker = worker_of(runtime, seen_from)
    role = workers(runtime).get(worker)
    if role is None:
        raise click.ClickException("no agent runs here, and only an agent knows routes")
    found: dict[str, Any] = tell(runtime, worker, "explain", kind="route", name=address)
    trace = found["trace"]
    keys = {one["key"].partition(" dev ")[0] for one in trace["steps"]} if trace else set()
    decided = answer(runtime, role, Request("history", {"key": None, "last": _LOOKED_THROUGH})) if keys else []
    return {**found, "name": address, "decisions": [one for one in decided if one["key"] in keys][-_DECISIONS:]}


def told(one: dict[str, Any]) -> Iterator[str]:
    trace = one["trace"]
    if trace is None:
        yield f"{one['host']} has no route of ours to {one['name']}: no endpoint that it knows has this address."
        return
    is_whole = all(step["wanted"] and not step["missing"] and not step["waiting"] for step in trace["steps"])
    doubt = "" if is_whole else " once all of this is as wanted"
    yield f"From {one['host']}, packets to {one['name']} go {trace['leads']}{doubt}."
    yield ""
    yield _row("ROUTE", f"{trace['prefix']}{_owner(trace)}")
    for step in trace["steps"]:
        yield _row("OBJECT", f"{step['key']}: {object_state(step)}")
        waiting = step["waiting"]
        if waiting and waiting["opens"]:
            yield _row("", f"opens by: {waiting['opens']}")
    for decision in reversed(one["decisions"]):
        yield _row("BEFORE", f"{decision['time'][:19]}Z  {decision['op']} {decision['key']}: {decision['sentence']}")


def _owner(trace: Mapping[str, Any]) -> str:
    if not trace["host"]:
        return ", known only from the kernel's tags: nobody has claimed it since the agent lost its journal"
    endpoint = f"endpoint {trace['endpoint']} on " if trace["endpoint"] else ""
    return f" is {endpoint}host {trace['host']}'s"


def _row(head: str, text: str) -> str:
    return f"{head:<10}{text}"
