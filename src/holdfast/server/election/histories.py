"""Answers to the history requests of other servers: the last decisions of this one, through the store.

An answer is under the lease of the request, so it goes when the server that asked has read it, or is gone itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import structlog

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.decision import Decision
from holdfast.model.control.history_request import (
    HISTORY_ANSWER,
    HISTORY_REQUEST,
    HistoryAnswer,
    HistoryRequest,
    answer_name,
)
from holdfast.runtime.control import Request, ask
from holdfast.store.api import Entry, LeaseGone, Store, StoreAway, StoreError

log = structlog.get_logger(__name__)

LOOK_EVERY = Duration(seconds=1)
LARGEST = 512 << 10
"""Bytes of an answer: etcd refuses values above 1.5 MiB."""


class HistoryAnswers:
    """Answers of one server. `supervisor` is the control socket of its own supervisor."""

    def __init__(self, store: Store, region: Region, name: str, supervisor: Path) -> None:
        self._store = store
        self._region = region
        self._name = name
        self._supervisor = supervisor
        self._answered: set[bytes] = set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            try:
                await self.answer_requests()
            except (StoreAway, StoreError) as error:
                log.debug("cannot read history requests; retrying", error=str(error))

    async def answer_requests(self) -> None:
        """Answer the requests to this server that it has not answered yet."""
        there = [
            entry async for page in self._store.list(HISTORY_REQUEST.prefix(self._region)) for entry in page.entries
        ]
        self._answered &= {entry.key for entry in there}
        for entry in there:
            if entry.key not in self._answered:
                self._answered.add(entry.key)
                await self._answer(entry)

    async def _answer(self, entry: Entry) -> None:
        request = HISTORY_REQUEST.parse(entry.key, self._region)
        asked = HISTORY_REQUEST.decode(entry.key, entry.value)
        if isinstance(request, Bad) or isinstance(asked, Bad) or self._name not in asked.servers:
            return
        found = await self._decisions(asked)
        if found is None:
            return
        value, key = (
            HISTORY_ANSWER.encode(fitting(found)),
            HISTORY_ANSWER.key(self._region, answer_name(request, self._name)),
        )
        try:
            await self._store.put(key, value, lease=entry.lease)
        except LeaseGone:
            log.debug("history request is over", request=request)

    async def _decisions(self, asked: HistoryRequest) -> list[Decision] | None:
        answer = await ask(self._supervisor, Request("history", {"key": asked.key, "last": asked.last}))
        if answer.error:
            log.warning("history request not answered", error=answer.error)
            return None
        return msgspec.convert(answer.result, list[Decision])


def fitting(found: list[Decision], largest: int = LARGEST) -> HistoryAnswer:
    """Return the newest decisions that fit into one answer."""
    size, first = 0, len(found)
    while first and (size := size + len(msgspec.json.encode(found[first - 1])) + 1) <= largest:
        first -= 1
    return HistoryAnswer(tuple(found[first:]), omitted=first)
