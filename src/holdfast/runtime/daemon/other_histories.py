"""Decisions of the other servers, asked through the store: each server keeps its own decision log.

A leader's syncer and status workers decide; after a failover the decisions before it are in the log of another server.
The request and its answers are under one lease, which ends with the request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.decision import Decision
from holdfast.model.control.history_request import HISTORY_ANSWER, HISTORY_REQUEST, HistoryRequest, answer_name
from holdfast.store.api import Store
from holdfast.store.servers import read_servers

WITHIN = 6.0
"""Seconds for which the others are waited for: a server looks for requests every second."""
_LEASE = Duration(seconds=30)
_LOOK_EVERY = 0.2


class ServerHistory(msgspec.Struct, frozen=True):
    """Decisions of one other server; None if it has not answered."""

    server: str
    decisions: tuple[Decision, ...] | None
    omitted: int = 0
    """Number of its older decisions that did not fit into an answer."""


async def other_histories(
    store: Store, region: Region, *, known: Collection[str], key: str | None, last: int, within: float = WITHIN
) -> list[ServerHistory]:
    """Ask all servers but those that are `known`. Raises `StoreAway` or `StoreError`."""
    servers = [one.name for one in await read_servers(store, region) if one.name not in known]
    if not servers:
        return []
    request, lease = secrets.token_hex(8), await store.grant(_LEASE)
    try:
        wanted = HISTORY_REQUEST.encode(HistoryRequest(tuple(servers), key, last))
        await store.put(HISTORY_REQUEST.key(region, request), wanted, lease=lease)
        return await _answers(store, region, request, servers, within)
    finally:
        await store.revoke(lease)


async def _answers(
    store: Store, region: Region, request: str, servers: Sequence[str], within: float
) -> list[ServerHistory]:
    found = dict.fromkeys(servers, ServerHistory("", None))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while loop.time() < deadline and any(one.decisions is None for one in found.values()):
        await asyncio.sleep(_LOOK_EVERY)
        for server in [name for name, one in found.items() if one.decisions is None]:
            entry = await store.get(HISTORY_ANSWER.key(region, answer_name(request, server)))
            answer = None if entry is None else HISTORY_ANSWER.decode(entry.key, entry.value)
            if answer is not None and not isinstance(answer, Bad):
                found[server] = ServerHistory(server, answer.decisions, answer.omitted)
    return [msgspec.structs.replace(one, server=server) for server, one in found.items()]
