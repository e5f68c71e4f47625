"""The network between one client and the FakeStore, with its faults.

A call is a request that travels, is applied in the store, and a reply that travels back. Each half can be slow or
lost, so a write may be applied although its caller got no reply, and even after its caller gave up. A watch is a
stream that carries the revision up to which everything has arrived. Neither belongs to the calling node: what is in
flight arrives while the caller is paused or dead.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar, cast

from holdfast.model.base.time import Duration
from holdfast.store.api import Keys, StoreAway, StoreError, span

T = TypeVar("T")

WRITES = frozenset({"txn", "put", "delete", "grant", "renew", "revoke", "compact"})
"""Calls whose loss leaves it uncertain whether they were applied."""


class Fate(Enum):
    """Outcome of one call."""

    ANSWERED = "answered"
    REFUSED = "connection refused: not applied, and the caller knows at once"
    REQUEST_LOST = "not applied, and the caller gets no reply before its deadline"
    REPLY_LOST = "applied, and the caller gets no reply before its deadline"
    REPLY_CUT = "applied, and the connection ends somewhere inside the reply"


def always_answered(_method: str) -> Fate:
    """Every call is answered."""
    return Fate.ANSWERED


@dataclass(eq=False)
class FakeStream:
    """One watch stream: every change up to `horizon` has arrived."""

    horizon: int = 0
    prefixes: Sequence[Keys] = (b"",)
    continuous: bool = True
    muted: bool = False
    held_back: bytes | None = None
    """Ranges of keys that begin with this deliver nothing now, while the others of the stream do."""
    advanced: asyncio.Event = field(default_factory=asyncio.Event)

    def advance(self, revision: int) -> None:
        if not self.muted:
            self.horizon = max(self.horizon, revision)
            self.advanced.set()

    def lose(self) -> None:
        """Lose continuity: the watch has to list again."""
        self.continuous = False
        self.advanced.set()


@dataclass
class _Answer(Generic[T]):
    """A reply in flight: a value or the store's refusal. A value, so that a lost refusal is silent."""

    value: T | None = None
    error: Exception | None = None

    def open(self) -> T:
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


class FakeLink:
    """Carries the calls and watch streams of one client."""

    def __init__(self) -> None:
        self.latency: Callable[[], float] = lambda: 0.0
        """One-way latency in seconds, called for every message."""
        self.fate_of: Callable[[str], Fate] = always_answered
        """Fate of a call by the name of its method, unless `next_calls` decided it."""
        self.up = True
        """False while nothing passes in either direction."""
        self._queued: list[tuple[Fate, str | None]] = []
        self._pending: list[asyncio.Future[_Answer[Any]]] = []
        self._streams: list[FakeStream] = []
        self._revision = 0

    def next_calls(self, fate: Fate, *, count: int = 1, of: str | None = None) -> None:
        """Give this fate to the next `count` calls (of that method)."""
        self._queued.extend([(fate, of)] * count)

    def cut(self) -> None:
        """Partition the client: what is sent or in flight is lost, and streams are silent."""
        self.up = False

    def mute_watches(self, prefix: bytes = b"") -> None:
        """Half-open every current stream that carries keys below that prefix: silent for ever, while calls and new
        streams are answered."""
        for stream in self._streams:
            stream.muted = stream.muted or any(span(each).first.startswith(prefix) for each in stream.prefixes)

    def hold_back(self, prefix: bytes) -> None:
        """Let ranges of keys that begin with `prefix` fall behind the others of their stream."""
        for stream in self._streams:
            stream.held_back = prefix

    def heal(self) -> None:
        """Let everything pass again; streams catch up."""
        self.up = True
        for stream in self._streams:
            stream.muted, stream.held_back = False, None
        self.notify(self._revision)

    def disconnect(self) -> None:
        """Reset every connection: calls in flight fail at once, and it is uncertain whether they were applied."""
        for reply in self._pending:
            if not reply.done():
                reply.set_result(_Answer(error=StoreAway("the connection was reset", uncertain=True)))

    def sever(self) -> None:
        """Cut the link for good: calls are refused at once, those in flight fail, streams are silent."""
        self.cut()
        self.fate_of = lambda _method: Fate.REFUSED
        self._queued.clear()
        self.disconnect()

    def lose_continuity(self) -> None:
        """Make every watch begin again with a new snapshot."""
        for stream in self._streams:
            stream.lose()

    def open(self, revision: int, prefixes: Sequence[Keys] = (b"",)) -> FakeStream:
        stream = FakeStream(horizon=revision, prefixes=prefixes)
        self._revision = max(self._revision, revision)
        self._streams.append(stream)
        return stream

    def close(self, stream: FakeStream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)

    def notify(self, revision: int) -> None:
        """Advance every stream to `revision`."""
        self._revision = revision
        if self._streams and self.up:
            later(self.latency(), lambda: self._advance(revision))

    async def call(self, method: str, work: Callable[[], T], deadline: Duration) -> T:
        """Make one call. `work` runs in the store when the request arrives there."""
        fate = self._fate(method)
        if fate is Fate.REFUSED:
            await asyncio.sleep(0)
            raise StoreAway("the connection was refused")
        reply: asyncio.Future[_Answer[T]] = asyncio.get_running_loop().create_future()
        if fate is not Fate.REQUEST_LOST:
            later(self.latency(), lambda: self._deliver_request(work, reply, fate))
        return (await self._await(reply, method, deadline)).open()

    async def _await(self, reply: asyncio.Future[_Answer[T]], method: str, deadline: Duration) -> _Answer[T]:
        self._pending.append(reply)
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                return await reply
        except TimeoutError:
            why = f"no reply to {method} within {deadline.total_seconds():g} s"
            raise StoreAway(why, uncertain=method in WRITES) from None
        finally:
            self._pending.remove(reply)

    def _fate(self, method: str) -> Fate:
        for i, (fate, of) in enumerate(self._queued):
            if of is None or of == method:
                del self._queued[i]
                return fate
        return self.fate_of(method)

    def _deliver_request(self, work: Callable[[], T], reply: asyncio.Future[_Answer[T]], fate: Fate) -> None:
        if not self.up:
            return
        answer = _answer(work)
        if fate is Fate.REPLY_CUT:
            answer = _Answer(error=StoreAway("the connection ended inside the reply", uncertain=True))
        if fate is not Fate.REPLY_LOST:
            later(self.latency(), lambda: self._deliver_reply(answer, reply))

    def _deliver_reply(self, answer: _Answer[T], reply: asyncio.Future[_Answer[T]]) -> None:
        if self.up and not reply.done():
            reply.set_result(answer)

    def _advance(self, revision: int) -> None:
        if self.up:
            for stream in self._streams:
                stream.advance(revision)


def _answer(work: Callable[[], T]) -> _Answer[T]:
    try:
        return _Answer(value=work())
    except (StoreError, TypeError, ValueError) as refusal:
        return _Answer(error=refusal)


def _outside_any_node(function: Callable[[], T]) -> T:
    """Call a function in an empty context, so that its timers and tasks belong to no simulated node.

    The virtual loop assigns every callback to the node whose context it carries. What travels on the network or happens
    in the store must go on while the node is paused, and after its death.
    """
    return contextvars.Context().run(function)


def world_time() -> float:
    """Return the running loop's time as no node sees it; without a loop, the machine's monotonic time."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return time.monotonic()
    return _outside_any_node(loop.time)


def later(delay: float, action: Callable[[], None]) -> asyncio.Handle:
    """Run `action` outside any node after `delay` seconds; without a delay, in the order of the calls."""
    loop = asyncio.get_running_loop()
    if delay <= 0:
        return _outside_any_node(lambda: loop.call_soon(action))
    return _outside_any_node(lambda: loop.call_later(delay, action))
