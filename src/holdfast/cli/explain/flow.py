"""`holdfast explain flow SRC:PORT VIP`: where a flow goes, and by what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import tell
from holdfast.cli.daemons.balancer import WORKER


def about(runtime: Path, source: str, to: str | None) -> dict[str, Any]:
    if to is None:
        raise click.UsageError("say where it goes: holdfast explain flow SRC:PORT VIP (ADDRESS:PORT, or a frontend)")
    found: dict[str, Any] = tell(runtime, WORKER, "flow", source=source, to=to)
    return found


def told(one: dict[str, Any]) -> Iterator[str]:
    where = f"{one['frontend']} ({one['vip']})"
    if one["established"]:
        yield f"it is established with {one['established']}, by {where}, and stays there"
    elif one["backend"]:
        yield f"a new flow goes to {one['backend']}, by {where}"
    else:
        yield f"a new flow is refused: {where} has no backend with a weight"
    yield ""
    yield f"{'BUCKET':<10}{one['bucket']} of {one['buckets']}, by jhash of the {one['hashed']}"
    if one["backend"]:
        weight = "" if one["weight"] is None else f", which has weight {one['weight']}"
        yield f"{'LEADS TO':<10}{one['backend']}{weight} and {one['share'] / one['buckets']:.1%} of the buckets"
    if one["established"] and one["established"] != one["backend"]:
        yield f"{'BECAUSE':<10}the table has changed since it was opened; connection tracking keeps it where it is"
