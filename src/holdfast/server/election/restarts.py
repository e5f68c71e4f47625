"""Restart requests between servers: an operator asks any server to restart a worker of another one.

The server that the request names takes it (`requests`), and asks its own supervisor.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.restart_request import RESTART_REQUEST, RestartRequest
from holdfast.model.control.server import Server
from holdfast.runtime.control import Declined, Request, ask
from holdfast.server.election.requests import LeasedRequests
from holdfast.store.api import Store

log = structlog.get_logger(__name__)

LOOK_EVERY = Duration(seconds=2)
_VALID_FOR = Duration(seconds=60)


class RestartRequests:
    """Requests to and from one server. `supervisor` is the control socket of its own supervisor."""

    def __init__(self, store: Store, region: Region, name: str, supervisor: Path) -> None:
        self._requests = LeasedRequests(store, region, RESTART_REQUEST, _VALID_FOR)
        self._name = name
        self._supervisor = supervisor

    async def send(self, server: str, asked: RestartRequest, others: Mapping[str, Server]) -> str:
        """Ask another server. Raises `Declined` if there is no such server or worker, `StoreAway` or `StoreError`."""
        if server not in others:
            raise Declined(f"no other server is called {server}; there are: {', '.join(sorted(others)) or 'none'}")
        known = ("elector", *sorted(others[server].workers))
        if asked.worker not in known:
            raise Declined(f"{server} has no worker {asked.worker!r}; there are: {', '.join(known)}")
        await self._requests.put(server, asked)
        return f"{server} restarts its {asked.worker} within {2 * LOOK_EVERY.total_seconds():g} s"

    async def run(self) -> None:
        await self._requests.run(LOOK_EVERY, self.take)

    async def take(self) -> None:
        """Carry out a request to this server, if there is one."""
        asked = await self._requests.take(self._name)
        if asked is None:
            return
        request = Request("restart", {"reason": asked.why, "who": asked.who}, asked.worker)
        answer = await ask(self._supervisor, request)
        if answer.error:
            log.warning("restart request refused", worker=asked.worker, who=asked.who, error=answer.error)
