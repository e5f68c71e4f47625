"""A watch that loses no change: a snapshot, then every change after it, through any failure of its streams.

Several prefixes are one watch over the range from the first to the last: one order, and skipped changes in between.
Ranges are a watch each on one stream, without an order among them: each resumes after its own last event.

Decides when continuity is kept (resume after the last *event's* mod_revision, headers run ahead during catch-up, or
after an own write that came back, so that a quiet watch does not fall behind compaction, C52) and when it is lost (that
revision was compacted, the store went backwards, or its history is another one, `continuity`): then, and only then, it
lists again. It leaves a stream that does not deliver our own writes (C38), or whose member
changes identity, has no leader, or stays behind the others (`liveness`). While the store is unreachable the watch
yields nothing and retries.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, cast

import msgspec
import structlog

from holdfast.model.base.time import Duration
from holdfast.store.api import (
    GATHER,
    Compacted,
    Event,
    Events,
    KeyRange,
    Keys,
    OwnKey,
    Snapshot,
    StoreAway,
    StoreError,
    StoreRefused,
    in_key_order,
    named,
    streamed,
)
from holdfast.store.contact import WatchRestart
from holdfast.store.transport import failures, wire
from holdfast.store.transport.failures import Failed, StaleToken
from holdfast.store.transport.gateway import Gateway, GatewayCall, combined_error
from holdfast.store.transport.http import ConnectionLost, MemberAddress, NotSent, connect
from holdfast.store.watch.continuity import NO_PROOF, HistoryProof, KnownValues, ListSummary, at_event, at_snapshot
from holdfast.store.watch.listing import changed_list, full_list, whole
from holdfast.store.watch.liveness import StreamCheck
from holdfast.store.watch.own_writes import OwnWriteCheck, OwnWrites, QuietPlace
from holdfast.store.watch.stream import WatchRejected, WatchStream

BACKOFF_FIRST_S = 0.1
BACKOFF_MOST_S = 1.0
LASTED_S = 5.0
"""Time after which a stream that ends counts as one that worked: the next one is opened at once."""
CATCH_UP_S = 1.0
"""A watch that begins in the past catches up by itself, and the own key may be ahead of it. etcd advances such watches
ten times a second: where nothing came for this long, nothing is missing."""
CONFIRM_AGAIN_S = 0.1
"""Interval at which a reader that was busy when its watches should have been confirmed is checked again."""
RELIST_SPREAD = Duration(seconds=60)
"""Where a prefix is watched by many, thousands of watchers lose the same revision at the same moment: their lists of a
large prefix are spread over this time, and those of small prefixes over less or not at all."""
SMALL_PREFIX, LARGE_PREFIX = 1_000, 50_000
"""Keys up to which a prefix is listed again at once, and from which on its lists are spread over the whole time."""
OWN_ID, WATCH_ID = 1, 2
"""Id of the watch of our own key, and of the first of the others."""

log = structlog.get_logger(__name__)

_MOD_REVISION = attrgetter("mod_revision")
_LINE = wire.decoder(wire.WatchLine[Event])
_UNREAD_LINE = wire.decoder(wire.WatchLine[wire.UnreadEvent])
_RANGE = wire.decoder(wire.RangeReply)
_TXN = wire.decoder(wire.TxnReply)


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream, the member that serves it, and our token."""

    stream: WatchStream
    url: str
    member: int
    token: str


@dataclass(slots=True)
class Watch:
    """One watch of one reader, from `run` to its cancellation."""

    gateway: Gateway
    writes: OwnWrites
    rng: random.Random
    prefixes: tuple[Keys, ...]
    own: OwnKey | None = None
    held: Mapping[bytes, int] | None = None
    parts: bool = False
    gather: Duration = GATHER
    relist_spread: Duration = Duration(0)
    _ranges: tuple[KeyRange, ...] = field(init=False)
    """Ranges that the stream delivers, each by a watch of its own."""
    _next: list[int] = field(init=False)
    """Per watch, the revision from which it continues."""
    _listed: ListSummary = field(default_factory=ListSummary)
    _proof: HistoryProof = NO_PROOF
    _known: KnownValues = field(init=False)
    _own_check: OwnWriteCheck | None = None
    _quiet: QuietPlace | None = None
    _attempts: int = 0
    _logged: str = ""
    _rewound: bool = False
    _unconfirmed: set[int] = field(default_factory=set)
    """Watches of the open stream that the member has not confirmed yet."""
    _opened_at: float = math.inf
    _last_events_at: float = math.inf

    def __post_init__(self) -> None:
        self.prefixes = in_key_order(self.prefixes)
        self._ranges = streamed(self.prefixes)
        self._next = [0] * len(self._ranges)
        self._known = KnownValues(self.rng.sample)

    @property
    def _name(self) -> str:
        return named(self.prefixes)

    def _is_streamed(self, key: bytes) -> bool:
        """Return whether the stream covers that key, wanted or not."""
        return any(key in each for each in self._ranges)

    @property
    def _is_filtered(self) -> bool:
        """Return whether the stream covers keys between the prefixes."""
        return len(self._ranges) < len(self.prefixes)

    async def run(self) -> AsyncGenerator[Snapshot | Events, None]:
        async with aclosing(self._first_list()) as listed:
            async for part in listed:
                yield part
        if self.own is not None:
            self._own_check, self._quiet = OwnWriteCheck(self.own), QuietPlace(self.own)
            self.writes.add(self._own_check)
        try:
            while True:
                try:
                    async with self._opened() as opened:
                        while True:
                            events = self._read(opened, await opened.stream.read())
                            if events is not None:
                                yield events
                except Compacted:
                    why = WatchRestart.REWOUND if self._rewound else WatchRestart.COMPACTED
                    self.gateway.contact.restarts[why] += 1
                    async with aclosing(self._later_list()) as listed:
                        async for part in listed:
                            yield part
                except (StoreAway, StoreError, ConnectionLost) as error:
                    if self._opened_at < math.inf:
                        self.gateway.contact.restarts[WatchRestart.INTERRUPTED] += 1
                    await self._wait(error)
        finally:
            if self._own_check is not None:
                self.writes.remove(self._own_check)

    async def _first_list(self) -> AsyncGenerator[Snapshot, None]:
        while True:
            try:
                async with aclosing(self._as_requested(full_list(self.gateway, self.prefixes, self._wait))) as listed:
                    async for part in listed:
                        yield part
                return
            except StoreRefused:
                raise
            except (StoreAway, StoreError) as error:
                await self._wait(error)

    async def _later_list(self) -> AsyncGenerator[Snapshot, None]:
        keys = max(self._listed.count, len(self.held or ()))
        await asyncio.sleep(self.rng.uniform(0, spread_of(keys, self.relist_spread).total_seconds()))
        while True:
            try:
                if self.held is None or self._rewound:
                    listing = full_list(self.gateway, self.prefixes, self._wait)
                else:
                    known = self._known.entries()
                    listing = changed_list(self.gateway, self.prefixes, self.held, known, self._wait)
                async with aclosing(self._as_requested(listing)) as listed:
                    async for part in listed:
                        yield part
                return
            except (StoreAway, StoreError) as error:
                await self._wait(error)

    async def _as_requested(self, listing: AsyncGenerator[Snapshot, None]) -> AsyncGenerator[Snapshot, None]:
        """Yield the list in parts or whole, as the reader asked for it."""
        async with aclosing(listing):
            if not self.parts:
                yield self._record(await whole(listing))
                return
            async for part in listing:
                yield self._record(part)

    def _record(self, part: Snapshot) -> Snapshot:
        if part.first:
            self._listed = ListSummary()
        self._listed.add(part)
        if self.held is not None:
            self._known.add_part(part, self.held)
        if self._rewound:
            part = msgspec.structs.replace(part, went_back=True)
        if not part.more:
            self._next = [part.revision + 1] * len(self._ranges)
            self._proof = at_snapshot(self.prefixes, part.revision, self._listed)
            self._rewound = False
        return part

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Opened, None]:
        """Open a stream at the first member that serves one, and check its liveness until it is closed."""
        failed: list[Failed] = []
        for url in self.gateway.endpoints.order(self.gateway.now()):
            opened = await self._open(url)
            if isinstance(opened, Failed):
                failed.append(opened)
                continue
            self._opened_at = self._last_events_at = asyncio.get_running_loop().time()
            if self._quiet is not None:
                self._quiet.reopened()
            check = StreamCheck(self.gateway, url, opened.member, opened.stream, self._own_check)
            checking = asyncio.create_task(check.run())
            confirming = asyncio.create_task(self._confirm(opened))
            try:
                yield opened
            except (ConnectionLost, WatchRejected) as error:
                self.gateway.endpoints.failed(url, self.gateway.now())
                raise self._stream_error(opened, error) from error
            finally:
                confirming.cancel()
                checking.cancel()
                opened.stream.close()
            return
        raise combined_error(failed, effect=False)

    async def _open(self, url: str) -> Opened | Failed:
        timeout = self.gateway.connection.deadline.total_seconds()
        reached = await self._probe(url, timeout)
        if isinstance(reached, Failed):
            return reached
        history = await self._check_history(url, timeout)
        if isinstance(history, Failed):
            return history
        token = await self.gateway.tokens.current()
        endpoint = MemberAddress.parse(url)
        stream = WatchStream(endpoint, wire.WATCH, self._encode_request(), token, self.gather)
        try:
            async with asyncio.timeout(timeout):
                await connect(endpoint, self.gateway.tls_context(), stream)
        except (TimeoutError, NotSent) as error:
            self.gateway.endpoints.failed(url, self.gateway.now())
            cause = error.__cause__ if isinstance(error, NotSent) else error
            return failures.connection(url, cause, self.gateway.login)
        return Opened(stream, url, reached.header.member_id, token)

    async def _probe(self, url: str, timeout: float) -> wire.RangeReply | Failed:  # protection: C29
        """Check that the member has reached our revision: a watch from a future revision would be silent."""
        request = wire.RangeRequest(self._ranges[0].first, self._ranges[0].end, limit=1, keys_only=True)
        call = GatewayCall(wire.RANGE, wire.encode(request), _RANGE)
        reply = await self.gateway.call_member(url, call, self.gateway.endpoints.floor, timeout)
        if not isinstance(reply, Failed) and reply.header.revision < max(self._next) - 1:
            self._rewound = True  # C29: every member went backwards, so continuity is lost
            raise Compacted(0)
        return reply

    async def _check_history(self, url: str, timeout: float) -> wire.TxnReply | Failed:
        """Check that the store's history contains what we saw last: a store that was wiped or restored, and written
        beyond our revision since, would otherwise continue as if nothing had happened (C29)."""
        call = GatewayCall(wire.TXN, self._proof.request(), _TXN)
        reply = await self.gateway.call_member(url, call, self.gateway.endpoints.floor, timeout)
        if not isinstance(reply, Failed) and not self._proof.found(reply):
            log.warning(
                "store was wiped or restored since the last event; listing everything again",
                url=url,
                revision=max(self._next) - 1,
                prefix=self._name,
            )
            self._rewound = True
            raise Compacted(0)
        return reply

    def _encode_request(self) -> bytes:
        # From the last revision seen, not the next: etcd 3.4 drops a delete whose own revision was compacted, and a
        # watch from exactly that revision is not cancelled.
        creates = [
            wire.CreateRequest(each.first, each.end, following - 1, WATCH_ID + at)
            for at, (each, following) in enumerate(zip(self._ranges, self._next, strict=True))
        ]
        if self.own is not None and not self._is_streamed(self.own.key):
            creates.append(wire.CreateRequest(self.own.key, watch_id=OWN_ID))
        self._unconfirmed = {create.watch_id for create in creates}
        return b"".join(wire.encode(wire.WatchRequest(create)) for create in creates)

    def _read(self, opened: Opened, lines: bytes) -> Events | None:
        """Decode lines of the stream. Raises `Compacted` or `ConnectionLost`; then none of them is applied."""
        found: list[_Read] = []
        head, since, reached = 0, list(self._next), list(self._next)
        own: Event | None = None
        for line in self._decode(lines):
            result = line.result
            if not result.events:
                self._handle_control(opened, line)
            elif result.watch_id == OWN_ID:
                own = _read(result.events[-1])
            else:
                head, at = max(head, result.header.revision), result.watch_id - WATCH_ID
                new = result.events[0].mod_revision >= since[at]
                found += result.events if new else _from_revision(result.events, since[at])
                reached[at] = max(reached[at], result.events[-1].mod_revision + 1)
        if own is not None and self._own_check is not None:
            self._own_check.delivered(own.mod_revision)
        now = asyncio.get_running_loop().time()
        if not found:
            return self._own_delivered(own, now) if own is not None else None
        self._last_events_at, self.gateway.contact.last = now, self.gateway.now()
        self._attempts, self._logged = 0, ""
        newest = found[-1] if len(reached) == 1 else max(found, key=_MOD_REVISION)
        last = newest.mod_revision
        if self._own_check is not None and self._is_streamed(self._own_check.own.key):
            self._own_check.delivered(last)
        self._next, self._proof = reached, at_event(_read(newest))  # a skipped one as well
        if self._quiet is not None:
            self._quiet.reopened()
        batch = self._wanted(found)
        self._known.recent.extend(batch[-1:])
        self.gateway.endpoints.saw(last)
        return Events(last, batch, max(head, last), skipped=len(found) - len(batch))

    def _wanted(self, found: list[_Read]) -> list[Event]:
        """Decode the changes under the prefixes."""
        if not self._is_filtered:
            return cast("list[Event]", found)
        wanted = cast("tuple[bytes, ...]", self.prefixes)
        return [_read(event) for event in found if event.kv.key.startswith(wanted)]

    def _decode(self, lines: bytes) -> list[wire.WatchLine[Any]]:
        try:
            return (_UNREAD_LINE if self._is_filtered else _LINE).decode_lines(lines)
        except msgspec.DecodeError as error:
            raise ConnectionLost(f"a line of the watch stream cannot be read ({error})") from error

    def _own_delivered(self, own: Event, now: float) -> Events | None:
        """Handle an own write that came back alone."""
        settled = self._quiet.delivered(own, now) if self._quiet is not None else None
        if settled is not None and settled.mod_revision >= min(self._next):
            self._next = [max(each, settled.mod_revision + 1) for each in self._next]
            self._proof = at_event(settled)
        return Events(0, [], own=own.mod_revision) if now - self._last_events_at > CATCH_UP_S else None

    def _handle_control(self, opened: Opened, line: wire.WatchLine[Any]) -> None:
        """Handle a line without events: a watch was created or cancelled."""
        cancelled = self._cancellation(opened, line)
        if cancelled is not None:
            raise cancelled
        if line.result.created:
            self._unconfirmed.discard(line.result.watch_id)
        if line.result.created and self._own_check is not None:
            if line.result.watch_id == OWN_ID:
                self._own_check.reopened(line.result.header.revision)
            elif self._is_streamed(self._own_check.own.key):
                self._own_check.reopened(min(self._next) - 1)

    async def _confirm(self, opened: Opened) -> None:
        await asyncio.sleep(self.gateway.connection.deadline.total_seconds())
        while not opened.stream.waiting:  # noqa: ASYNC110 -- a busy reader has not read what has arrived
            await asyncio.sleep(CONFIRM_AGAIN_S)
        self._check_confirmed(opened)

    def _check_confirmed(self, opened: Opened) -> None:  # protection: C72
        """End a stream on which a watch was never created: its range would be silent for ever."""
        if self._unconfirmed:
            opened.stream.fail(f"{opened.url} confirmed no watch {', '.join(map(str, sorted(self._unconfirmed)))}")

    # protection: C18
    def _cancellation(self, opened: Opened, line: wire.WatchLine[Any]) -> Compacted | ConnectionLost | None:
        """Return why etcd cancelled the watch, if it did; the stream itself would stay open and silent for ever."""
        if line.error is None and not line.result.canceled:
            return None
        if line.result.compact_revision:
            return Compacted(line.result.compact_revision)
        error = line.error or wire.ErrorBody(line.result.cancel_reason or "no reason given")
        if failures.stale_token(error.code or error.grpc_code, error.message):
            self.gateway.tokens.renewable(opened.token)
        return ConnectionLost(f"the watch was cancelled: {error.message}")

    def _stream_error(self, opened: Opened, error: ConnectionLost | WatchRejected) -> StoreAway:
        if isinstance(error, ConnectionLost):
            return StoreAway(f"watch at {opened.url} ended ({error})")
        finding = failures.answer(opened.url, error.status, error.body, self.gateway.login)
        if isinstance(finding, StaleToken):
            self.gateway.tokens.renewable(opened.token)
        return StoreAway(finding.why if isinstance(finding, Failed) else f"{opened.url} answers a watch with {error}")

    async def _wait(self, error: Exception) -> None:
        """Back off, longer each time until a stream has lasted or delivered an event."""
        why = str(error)
        if asyncio.get_running_loop().time() - self._opened_at > LASTED_S:
            self._attempts, self._logged = 0, ""
        self._opened_at = math.inf
        if why != self._logged:
            log.warning("watch interrupted; retrying", prefix=self._name, why=why)
            self._logged = why
        delay = min(BACKOFF_FIRST_S * 2 ** min(self._attempts, 10), BACKOFF_MOST_S)
        self._attempts += 1
        await asyncio.sleep(self.rng.uniform(delay / 2, delay))


def spread_of(keys: int, most: Duration) -> Duration:
    """Time over which readers spread their lists of a prefix with that many keys."""
    return most * min(1.0, max(0.0, (keys - SMALL_PREFIX) / (LARGE_PREFIX - SMALL_PREFIX)))


_Read = Event | wire.UnreadEvent


def _read(event: _Read) -> Event:
    return event if isinstance(event, Event) else event.read()


def _from_revision(events: Sequence[_Read], revision: int) -> Sequence[_Read]:
    """Drop events before `revision`: a stream begins with the event that was seen last."""
    return [event for event in events if event.mod_revision >= revision]
