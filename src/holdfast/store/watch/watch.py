"""A watch that never loses anything: a snapshot, then every change after it, through whatever happens to the stream.

Decides when continuity is kept (what follows the last *event's* mod_revision is shown next: headers run ahead during
catch-up) and when it is lost (that revision was compacted, the store went backwards, or its history is not the one that
was followed, `landmark`): then, and only then, comes a new snapshot. A stream is left when its own writes do not come
back (C38), when its member changes identity, has no leader, or stays behind the others. While the store is away the
watch is silent and keeps trying.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import structlog

from holdfast.model.base.time import Duration
from holdfast.store.api import GATHER, Compacted, Event, Events, OwnKey, Snapshot, StoreAway, StoreError, StoreRefused
from holdfast.store.transport import failures as explain
from holdfast.store.transport import wire
from holdfast.store.transport.failures import Failed, StaleToken
from holdfast.store.transport.gateway import Gateway, GatewayCall, verdict
from holdfast.store.transport.http import ConnectionLost, MemberAddress, NotSent, connect
from holdfast.store.watch.continuity import NOWHERE, HistoryProof, Listed, at_event, at_snapshot
from holdfast.store.watch.listing import changed_list, full_list, whole
from holdfast.store.watch.liveness import StreamCheck
from holdfast.store.watch.own_writes import OwnWriteCheck, OwnWrites
from holdfast.store.watch.stream import WatchRejected, WatchStream

BACKOFF_FIRST_S = 0.1
BACKOFF_MOST_S = 5.0
CATCH_UP_S = 1.0
"""A watch that begins in the past catches up on its own, and what is read of the own key may be ahead of it. etcd looks
after such watches ten times a second: where nothing came for so long, nothing is missing."""
RELIST_SPREAD = Duration(seconds=60)
WATCH_ID, OWN_ID = 1, 2

log = structlog.get_logger(__name__)

_LINE = wire.decoder(wire.WatchLine)
_RANGE = wire.decoder(wire.RangeReply)
_TXN = wire.decoder(wire.TxnReply)


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream, and who serves it under which token."""

    stream: WatchStream
    url: str
    member: int
    token: str


@dataclass(slots=True)
class Watch:
    """One watch of one reader; `run` is its whole life."""

    gateway: Gateway
    writes: OwnWrites
    rng: random.Random
    prefix: bytes
    own: OwnKey | None = None
    held: Mapping[bytes, int] | None = None
    parts: bool = False
    gather: Duration = GATHER
    relist_spread: Duration = RELIST_SPREAD
    _next: int = 0
    _listed: Listed = field(default_factory=Listed)
    _landmark: HistoryProof = NOWHERE
    _echo: OwnWriteCheck | None = None
    _attempts: int = 0
    _said: str = ""
    _rewound: bool = False
    _opened_at: float = math.inf
    _heard_at: float = math.inf

    async def run(self) -> AsyncGenerator[Snapshot | Events, None]:
        async with aclosing(self._first_list()) as listed:
            async for part in listed:
                yield part
        if self.own is not None:
            self._echo = OwnWriteCheck(self.own)
            self.writes.add(self._echo)
        try:
            while True:
                try:
                    async with self._opened() as opened:
                        while True:
                            events = self._read(opened, await opened.stream.read())
                            if events is not None:
                                yield events
                except Compacted:
                    async with aclosing(self._later_list()) as listed:
                        async for part in listed:
                            yield part
                except (StoreAway, StoreError, ConnectionLost) as error:
                    await self._wait(str(error))
        finally:
            if self._echo is not None:
                self.writes.remove(self._echo)

    async def _first_list(self) -> AsyncGenerator[Snapshot, None]:
        while True:
            try:
                async with aclosing(self._handed_out(full_list(self.gateway, self.prefix))) as listed:
                    async for part in listed:
                        yield part
                return
            except StoreRefused:
                raise
            except (StoreAway, StoreError) as error:
                await self._wait(str(error))

    async def _later_list(self) -> AsyncGenerator[Snapshot, None]:
        # Thousands of watchers lose the same revision at the same moment: they must not list at the same moment.
        await asyncio.sleep(self.rng.uniform(0, self.relist_spread.total_seconds()))
        while True:
            try:
                # After a restore the same revision can name another value: then nothing that is held counts.
                if self.held is None or self._rewound or not await self._still_stands():
                    listing = full_list(self.gateway, self.prefix)
                else:
                    listing = changed_list(self.gateway, self.prefix, self.held)
                async with aclosing(self._handed_out(listing)) as listed:
                    async for part in listed:
                        yield part
                return
            except (StoreAway, StoreError) as error:
                await self._wait(str(error))

    async def _handed_out(self, listing: AsyncGenerator[Snapshot, None]) -> AsyncGenerator[Snapshot, None]:
        """A list as its reader has asked for it: in parts, or whole."""
        async with aclosing(listing):
            if not self.parts:
                yield self._taken(await whole(listing))
                return
            async for part in listing:
                yield self._taken(part)

    def _taken(self, part: Snapshot) -> Snapshot:
        if part.first:
            self._listed = Listed()
        self._listed.add(part)
        if not part.more:
            self._next = part.revision + 1
            self._landmark = at_snapshot(self.prefix, part.revision, self._listed)
            self._rewound = False
        return part

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Opened, None]:
        """A stream at the first member that serves one, watched over until it is left."""
        failures: list[Failed] = []
        for url in self.gateway.endpoints.order(self.gateway.now()):
            opened = await self._open(url)
            if isinstance(opened, Failed):
                failures.append(opened)
                continue
            self._opened_at = self._heard_at = asyncio.get_running_loop().time()
            vigil = asyncio.create_task(StreamCheck(self.gateway, url, opened.member, opened.stream, self._echo).keep())
            try:
                yield opened
            except (ConnectionLost, WatchRejected) as error:
                self.gateway.endpoints.failed(url, self.gateway.now())
                raise self._left(opened, error) from error
            finally:
                vigil.cancel()
                opened.stream.close()
            return
        raise verdict(failures, effect=False)

    async def _open(self, url: str) -> Opened | Failed:
        timeout = self.gateway.connection.deadline.total_seconds()
        reached = await self._probe(url, timeout)
        if isinstance(reached, Failed):
            return reached
        remembers = await self._remembers(url, timeout)
        if isinstance(remembers, Failed):
            return remembers
        token = await self.gateway.tokens.current()
        endpoint = MemberAddress.parse(url)
        stream = WatchStream(endpoint, wire.WATCH, self._request(), token, self.gather)
        try:
            async with asyncio.timeout(timeout):
                await connect(endpoint, self.gateway.tls, stream)
        except (TimeoutError, NotSent) as error:
            self.gateway.endpoints.failed(url, self.gateway.now())
            cause = error.__cause__ if isinstance(error, NotSent) else error
            return explain.connection(url, cause, self.gateway.login)
        return Opened(stream, url, reached.header.member_id, token)

    async def _probe(self, url: str, timeout: float) -> wire.RangeReply | Failed:
        """Makes sure that the member stands where the store stands: a watch from a future revision would be silent."""
        request = wire.RangeRequest(*wire.span(self.prefix), limit=1, keys_only=True)
        question = GatewayCall(wire.RANGE, wire.encode(request), _RANGE)
        reply = await self.gateway.ask(url, question, self.gateway.endpoints.floor, timeout)
        if not isinstance(reply, Failed) and reply.header.revision < self._next - 1:
            self._rewound = True  # C29: every member went backwards, so there is no continuity to keep
            raise Compacted(0)
        return reply

    async def _remembers(self, url: str, timeout: float) -> wire.TxnReply | Failed:
        """Makes sure that this store has gone through what was seen last: another one may have been written beyond our
        revision since it was wiped or restored, and would go on as if nothing had happened (C29)."""
        question = GatewayCall(wire.TXN, self._landmark.request(), _TXN)
        reply = await self.gateway.ask(url, question, self.gateway.endpoints.floor, timeout)
        if not isinstance(reply, Failed) and not self._landmark.found(reply):
            log.warning(
                f"the store at {url} does not know revision {self._next - 1} as we saw it: it was wiped or restored "
                "meanwhile; everything is listed again",
                prefix=self.prefix.decode(errors="replace"),
            )
            self._rewound = True
            raise Compacted(0)
        return reply

    async def _still_stands(self) -> bool:
        """Whether the key that was seen last is in the store as it was seen. Where history is compacted, this is the
        only proof that the store is the one that was left (C29); without it, nothing that is held counts."""
        standing = self._landmark.standing()
        if not standing.looks:
            return False
        return standing.found(await self.gateway.call(GatewayCall(wire.TXN, standing.request(), _TXN)))

    def _request(self) -> bytes:
        key, end = wire.span(self.prefix)
        # From the last revision seen, not the one after: etcd 3.4 drops a delete whose own revision is the one that was
        # compacted, and a watch from exactly there is neither cancelled nor told.
        creates = [wire.CreateRequest(key, end, self._next - 1, WATCH_ID)]
        if self.own is not None and not self.own.key.startswith(self.prefix):
            creates.append(wire.CreateRequest(self.own.key, watch_id=OWN_ID))
        return b"".join(wire.encode(wire.WatchRequest(create)) for create in creates)

    def _read(self, opened: Opened, lines: bytes) -> Events | None:
        """Takes in what the stream has said. Raises `Compacted` or `ConnectionLost`; then nothing of it counts."""
        batch: list[Event] = []
        head, own, since = 0, 0, self._next
        for said in _decode(lines):
            result = said.result
            if not result.events:
                self._notice(opened, said)
            elif result.watch_id == OWN_ID:
                own = self._own_events(result)
            else:
                head = result.header.revision
                batch += result.events if result.events[0].mod_revision >= since else _since(result.events, since)
        now = asyncio.get_running_loop().time()
        if not batch:
            return Events(0, batch, own=own) if own and now - self._heard_at > CATCH_UP_S else None
        self._heard_at = now
        self._attempts, self._said = 0, ""
        last = batch[-1].mod_revision
        if self._echo is not None and self._echo.own.key.startswith(self.prefix):
            self._echo.came_back(last)
        self._next = last + 1
        self._landmark = at_event(batch[-1])
        self.gateway.endpoints.saw(last)
        return Events(last, batch, max(head, last))

    def _own_events(self, result: wire.WatchResult) -> int:
        newest = result.events[-1].mod_revision
        if self._echo is not None:
            self._echo.came_back(newest)
        return newest

    def _notice(self, opened: Opened, said: wire.WatchLine) -> None:
        """A line that brings no events: a watch begins, or is over."""
        over = self._ended(opened, said)
        if over is not None:
            raise over
        if said.result.created and self._echo is not None:
            if said.result.watch_id == OWN_ID:
                self._echo.reopened(said.result.header.revision)
            elif self._echo.own.key.startswith(self.prefix):
                self._echo.reopened(self._next - 1)

    def _ended(self, opened: Opened, said: wire.WatchLine) -> Compacted | ConnectionLost | None:
        """Why etcd has cancelled the watch, if it has; the stream itself would stay open and silent for ever (C18)."""
        if said.error is None and not said.result.canceled:
            return None
        if said.result.compact_revision:
            return Compacted(said.result.compact_revision)
        error = said.error or wire.ErrorBody(said.result.cancel_reason or "no reason given")
        if explain.stale_token(error.code or error.grpc_code, error.message):
            self.gateway.tokens.renewable(opened.token)
        return ConnectionLost(f"the watch was cancelled: {error.message}")

    def _left(self, opened: Opened, error: ConnectionLost | WatchRejected) -> StoreAway:
        if isinstance(error, ConnectionLost):
            return StoreAway(f"watch at {opened.url} ended ({error})")
        finding = explain.answer(opened.url, error.status, error.body, self.gateway.login)
        if isinstance(finding, StaleToken):
            self.gateway.tokens.renewable(opened.token)
        return StoreAway(finding.why if isinstance(finding, Failed) else f"{opened.url} answers a watch with {error}")

    async def _wait(self, why: str) -> None:
        """Waits longer each time, until a stream has lasted or has shown something."""
        if asyncio.get_running_loop().time() - self._opened_at > BACKOFF_MOST_S:
            self._attempts, self._said = 0, ""
        self._opened_at = math.inf
        if why != self._said:
            log.warning("watch waits", prefix=self.prefix.decode(errors="replace"), why=why)
            self._said = why
        delay = min(BACKOFF_FIRST_S * 2 ** min(self._attempts, 10), BACKOFF_MOST_S)
        self._attempts += 1
        await asyncio.sleep(self.rng.uniform(delay / 2, delay))


def _since(events: Sequence[Event], revision: int) -> Sequence[Event]:
    """Those that are new: a stream begins with what was seen last."""
    return [event for event in events if event.mod_revision >= revision]


def _decode(lines: bytes) -> list[wire.WatchLine]:
    try:
        return _LINE.decode_lines(lines)
    except msgspec.DecodeError as error:
        raise ConnectionLost(f"a line of the watch stream cannot be read ({error})") from error
