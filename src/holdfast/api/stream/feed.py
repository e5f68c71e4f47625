"""Feed of the event stream: reads the documents while a client listens, and hands on what changed.

All clients share one set of readers. There is no queue per client: a slow one finds the newest levels when it reads
on, and at most the increments that are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
import structlog

from holdfast.api.documents import DocumentError, Documents
from holdfast.api.stream.replay import StreamReplay

log = structlog.get_logger(__name__)

MOST_CLIENTS = 32
_LINGER_S = 10.0
_TICK_S = 1.0
"""A client without a message for five of them is cut off."""
_DECISIONS = 300
"""Decisions that a new client gets."""

Read = Callable[[], Awaitable[None]]


class TooManyClients(DocumentError):
    status = 503


class EventFeed:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._replay = StreamReplay(secrets.token_hex(4))
        self._arrived = asyncio.Condition()
        self._clients = 0
        self._stopping = False
        self._reading: asyncio.Task[None] | None = None
        self._cells: Mapping[str, Any] = {}
        self._decisions: list[dict[str, Any]] = []
        self._troubles: dict[str, str] = {}
        """Reason why a document cannot be read, by the event that would carry it."""

    def admit(self) -> None:
        """Raise `TooManyClients` if another client is too many."""
        if self._clients >= MOST_CLIENTS:
            raise TooManyClients(f"{MOST_CLIENTS} clients listen already: close a page, or try again later")

    def stop(self) -> None:
        """End all streams, within a second."""
        self._stopping = True

    async def messages(self, last_id: str | None) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events, without end; what was missed since `last_id` first."""
        self.admit()
        self._clients += 1
        if self._reading is None:
            self._begin()
        seen = self._replay.number_of(last_id) if last_id else None
        try:
            yield b"retry: 1000\n\n"
            while not self._stopping:
                for message in self._replay.after(seen):
                    seen = message.number
                    text = f"id: {self._replay.id_of(message)}\nevent: {message.event}\ndata: {message.data}\n\n"
                    yield text.encode()
                yield b"event: tick\ndata: {}\n\n"
                await self._wait(seen or 0)
        finally:
            self._clients -= 1

    def _begin(self) -> None:
        """Begin to read. What was read before the last client left may be hours old: no page may show it as live."""
        self._replay.forget("hosts")
        self._cells, self._troubles = {}, {}
        self._reading = asyncio.create_task(self._read(), name="stream")

    async def _wait(self, seen: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TICK_S), self._arrived:
                await self._arrived.wait_for(lambda: self._replay.newest > seen)

    async def _read(self) -> None:
        """Read until no client has listened for a while."""
        readers = [
            asyncio.create_task(self._repeat(every, read), name=f"stream {read.__name__}")
            for every, read in (
                (1.0, self._read_status),
                (1.0, self._read_fleet),
                (1.0, self._read_hosts),
                (2.0, self._read_frontends),
                (2.0, self._read_decisions),
            )
        ]
        idle = 0.0
        try:
            while idle < _LINGER_S:
                await asyncio.sleep(_TICK_S)
                idle = 0.0 if self._clients else idle + _TICK_S
        finally:
            self._reading = None
            for reader in readers:
                reader.cancel()
            await asyncio.wait(readers)

    async def _repeat(self, every: float, read: Callable[[], Awaitable[bool]]) -> None:
        """Read again and again, whatever a read ends with: a reader that ended would leave its section as it was."""
        of = read.__name__.removeprefix("_read_")
        while True:
            changed, trouble = False, ""
            try:
                changed = await read()
            except DocumentError as error:
                trouble = str(error)
            except Exception as error:
                trouble = f"{type(error).__name__}: this is a bug: the log of the api worker has the details"
                if self._troubles.get(of) != trouble:
                    log.exception("reading for the dashboard failed; retrying", of=of)
            if self._in_trouble(of, trouble) or changed:
                async with self._arrived:
                    self._arrived.notify_all()
            await asyncio.sleep(every)

    def _in_trouble(self, of: str, why: str) -> bool:
        """Publish what is in trouble, with the reasons. Returns True if that is news."""
        self._troubles.pop(of, None)
        if why:
            self._troubles[of] = why
        return self._level("trouble", dict(sorted(self._troubles.items())))

    def _level(self, event: str, document: Any) -> bool:
        return self._replay.level(event, _json(document))

    async def _read_status(self) -> bool:
        return self._level("status", await self._documents.summary())

    async def _read_fleet(self) -> bool:
        return self._level("fleet", await self._documents.fleet())

    async def _read_frontends(self) -> bool:
        return self._level("frontends", await self._documents.frontends())

    async def _read_hosts(self) -> bool:
        """Publish the changed cells; the whole grid where hosts came or went."""
        found = await self._documents.hosts()
        before, self._cells = self._cells, found
        if found is before or found == before:
            return False
        changes = {key: value for key, value in found.items() if key not in ("states", "reasons")}
        if before and changes.items() <= before.items():
            cells = _changed_cells(before, found)
            self._replay.increment("cells", _json(cells), ("hosts", _json(found)))
            return True
        total = _json(found)
        self._replay.increment("hosts", total, ("hosts", total))
        return True

    async def _read_decisions(self) -> bool:
        first = not self._decisions
        found = await self._documents.decisions(_DECISIONS)
        known = {_identity(one) for one in self._decisions}
        new = [one for one in found if _identity(one) not in known]
        if not new:
            return False
        self._decisions = sorted([*self._decisions, *new], key=lambda one: str(one["time"]))[-_DECISIONS:]
        event = "history" if first else "decisions"
        self._replay.increment(event, _json(new[-_DECISIONS:]), ("history", _json(self._decisions)))
        return True


def _changed_cells(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[list[Any]]:
    """Return index, letter and reason of each changed cell."""
    names, old, new = after["names"], before["reasons"], after["reasons"]
    pairs = zip(names, before["states"], after["states"], strict=True)
    return [
        [index, letter, new.get(name)]
        for index, (name, was, letter) in enumerate(pairs)
        if was != letter or old.get(name) != new.get(name)
    ]


def _identity(decision: Mapping[str, Any]) -> tuple[Any, ...]:
    return decision["time"], decision["worker"], decision["op"], decision["key"]


def _json(document: Any) -> str:
    return msgspec.json.encode(document).decode()
