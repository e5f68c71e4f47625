"""Restart requests between servers: an operator asks any server to restart a worker of another one.

The request is a key under a short lease. The server that it names deletes the key, and only then asks its own
supervisor: a request is carried out at most once, and a server that is away does not carry out an old one later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.restart_request import RESTART_REQUEST, RestartRequest
from holdfast.model.control.server import Server
from holdfast.runtime.control import Declined, Request, ask
from holdfast.store.api import Aspect, Compare, Delete, Put, Store, StoreAway, StoreError

log = structlog.get_logger(__name__)

LOOK_EVERY = Duration(seconds=2)
_VALID_FOR = Duration(seconds=60)


class RestartRequests:
    """Requests to and from one server. `supervisor` is the control socket of its own supervisor."""

    def __init__(self, store: Store, region: Region, name: str, supervisor: Path) -> None:
        self._store = store
        self._region = region
        self._key = RESTART_REQUEST.key(region, name)
        self._supervisor = supervisor

    async def send(self, server: str, asked: RestartRequest, others: Mapping[str, Server]) -> str:
        """Ask another server. Raises `Declined` if there is no such server or worker, `StoreAway` or `StoreError`."""
        if server not in others:
            raise Declined(f"no other server is called {server}; there are: {', '.join(sorted(others)) or 'none'}")
        known = ("elector", *sorted(others[server].workers))
        if asked.worker not in known:
            raise Declined(f"{server} has no worker {asked.worker!r}; there are: {', '.join(known)}")
        lease = await self._store.grant(_VALID_FOR)
        key = RESTART_REQUEST.key(self._region, server)
        await self._store.txn([], [Put(key, RESTART_REQUEST.encode(asked), lease)])
        return f"{server} restarts its {asked.worker} within {2 * LOOK_EVERY.total_seconds():g} s"

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            try:
                await self.take()
            except (StoreAway, StoreError) as error:
                log.debug("cannot read restart requests; retrying", error=str(error))

    async def take(self) -> None:
        """Carry out a request to this server, if there is one."""
        entry = await self._store.get(self._key)
        if entry is None:
            return
        same = Compare(self._key, Aspect.MOD_REVISION, entry.mod_revision)
        if not (await self._store.txn([same], [Delete(self._key)])).succeeded:
            return  # replaced by a newer one
        asked = RESTART_REQUEST.decode(entry.key, entry.value)
        if isinstance(asked, Bad):
            log.warning("unreadable restart request deleted", error=str(asked))
            return
        request = Request("restart", {"reason": asked.why, "who": asked.who}, asked.worker)
        answer = await ask(self._supervisor, request)
        if answer.error:
            log.warning("restart request refused", worker=asked.worker, who=asked.who, error=answer.error)
