"""`EtcdStore`: the `Store` protocol on a real etcd, through its JSON gateway.

Thin: each method encodes one request (`wire`), calls the gateway and converts the reply into the protocol's types.
Lists are ascending pages pinned to the revision of the first one (descending pages are quadratic in etcd, C17).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime

from holdfast.model.base.time import Duration, Instant
from holdfast.store.api import (
    GATHER,
    Compare,
    Entry,
    Events,
    Get,
    Keys,
    LeaseGone,
    LeaseTime,
    MemberStatus,
    Operation,
    OwnKey,
    Page,
    Put,
    Snapshot,
    StoreAway,
    StoreError,
    TxnResult,
    span,
)
from holdfast.store.boottime import Now, boot_now
from holdfast.store.contact import StoreContact
from holdfast.store.transport import failures, wire
from holdfast.store.transport.failures import Failed
from holdfast.store.transport.gateway import Connection, Gateway, GatewayCall, combined_error
from holdfast.store.watch.listing import FIRST_PAGE, few_attempts, next_page, read_next_page, read_range
from holdfast.store.watch.own_writes import OwnWrites
from holdfast.store.watch.watch import Watch

_MIN_TTL = Duration(seconds=2)
_PUT = wire.decoder(wire.PutReply)
_DELETE = wire.decoder(wire.DeleteReply)
_TXN = wire.decoder(wire.TxnReply)
_COMPACT = wire.decoder(wire.CompactReply)
_GRANT = wire.decoder(wire.GrantReply)
_RENEW = wire.decoder(wire.RenewReply)
_LEASE_TIME = wire.decoder(wire.LeaseTimeReply)
_STATUS = wire.decoder(wire.StatusReply)
_ALARM = wire.decoder(wire.AlarmReply)


class EtcdStore:
    """One etcd cluster. Create and use it inside one event loop."""

    def __init__(
        self,
        connection: Connection,
        *,
        now: Now = boot_now,
        rng: random.Random | None = None,
        relist_spread: Duration = Duration(0),
    ) -> None:
        """`relist_spread`: for a process of which there are many, the time over which their lists of a large prefix are
        spread (`RELIST_SPREAD`)."""
        self._gateway = Gateway(connection, now)
        self._now = now
        self._rng = rng or random.Random()
        self._relist_spread = relist_spread
        self._own = OwnWrites()

    @property
    def contact(self) -> StoreContact:
        return self._gateway.contact

    def clock(self) -> tuple[datetime, Instant] | None:
        """Return the wall clock of the member that answered last, to the second, and when its answer arrived."""
        dated = self._gateway.dated
        if dated is None:
            return None
        try:
            moment = parsedate_to_datetime(dated[0].decode("ascii"))
        except ValueError:
            return None
        return None if moment.tzinfo is None else (moment, dated[1])

    async def get(self, key: bytes, *, revision: int = 0) -> Entry | None:
        reply = await read_range(self._gateway, wire.RangeRequest(key, revision=revision))
        return reply.kvs[0] if reply.kvs else None

    async def list(
        self,
        prefix: Keys,
        *,
        after: bytes | None = None,
        revision: int = 0,
        page: int = 5_000,
        keys_only: bool = False,
    ) -> AsyncIterator[Page]:
        first, end = span(prefix).first, span(prefix).end
        if after is not None:
            first = max(first, after + b"\0")
        request = wire.RangeRequest(first, end, min(page, FIRST_PAGE), revision, keys_only)
        reply = await read_range(self._gateway, request)
        revision = revision or reply.header.revision
        while reply.more:
            last, size = reply.kvs[-1], next_page(reply.kvs, page)
            yield Page(revision, reply.kvs, more=True)
            request = wire.RangeRequest(last.key + b"\0", end, size, revision, keys_only)
            reply = await read_next_page(self._gateway, request, last, few_attempts())
        yield Page(revision, reply.kvs, more=False)

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        effect = any(not isinstance(op, Get) for op in (*then, *otherwise))
        reply = await self._gateway.call(
            GatewayCall(wire.TXN, wire.transaction(compares, then, otherwise), _TXN, effect=effect)
        )
        if self._own:
            written = then if reply.succeeded else otherwise
            self._own.note((op.key for op in written if isinstance(op, Put)), reply.header.revision, self._now())
        return TxnResult(reply.succeeded, reply.header.revision, [op.result() for op in reply.responses])

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        body = wire.encode(wire.PutRequest(key, value, lease))
        revision = (await self._gateway.call(GatewayCall(wire.PUT, body, _PUT, effect=True))).header.revision
        self._own.note((key,), revision, self._now())
        return revision

    async def delete(self, key: bytes, *, end: bytes | None = None) -> int:
        body = wire.encode(wire.DeleteRequest(key, end or b""))
        return (await self._gateway.call(GatewayCall(wire.DELETE, body, _DELETE, effect=True))).deleted

    def watch(
        self,
        *prefixes: Keys,
        own: OwnKey | None = None,
        held: Mapping[bytes, int] | None = None,
        parts: bool = False,
        gather: Duration = GATHER,
    ) -> AsyncIterator[Snapshot | Events]:
        return Watch(self._gateway, self._own, self._rng, prefixes, own, held, parts, gather, self._relist_spread).run()

    def note_write(self, key: bytes, revision: int) -> None:
        self._own.note((key,), revision, self._now())

    async def grant(self, ttl: Duration) -> int:
        if ttl < _MIN_TTL:
            raise ValueError(f"a lease of {ttl.total_seconds():g} s is refused: etcd grants no less than 2 s")
        body = wire.encode(wire.GrantRequest(-(-ttl // Duration(seconds=1))))
        return (await self._gateway.call(GatewayCall(wire.GRANT, body, _GRANT, effect=True))).ID

    async def renew(self, lease: int) -> Duration:
        body = wire.encode(wire.LeaseRequest(lease))
        reply = await self._gateway.call(GatewayCall(wire.KEEPALIVE, body, _RENEW, linear=False))
        if reply.error is not None:
            raise StoreAway(reply.error.message)
        if reply.result is None or reply.result.TTL <= 0:
            raise LeaseGone("the lease has expired or was revoked")
        return Duration(seconds=reply.result.TTL)

    async def lease_time(self, lease: int) -> LeaseTime:
        body = wire.encode(wire.LeaseRequest(lease))
        reply = await self._gateway.call(GatewayCall(wire.TIME_TO_LIVE, body, _LEASE_TIME, linear=False))
        if reply.TTL < 0:
            raise LeaseGone("the lease has expired or was revoked")
        return LeaseTime(Duration(seconds=reply.grantedTTL), Duration(seconds=reply.TTL))

    async def revoke(self, lease: int) -> None:
        body = wire.encode(wire.LeaseRequest(lease))
        await self._gateway.call(GatewayCall(wire.REVOKE, body, _COMPACT, effect=True))

    async def compact(self, revision: int) -> None:
        body = wire.encode(wire.CompactRequest(revision))
        await self._gateway.call(GatewayCall(wire.COMPACT, body, _COMPACT, effect=True))

    async def status(self, within: Duration | None = None) -> Sequence[MemberStatus]:
        answers = await asyncio.gather(*(self._status(url, within) for url in self._gateway.urls))
        reached = [answer for answer in answers if isinstance(answer, MemberStatus)]
        if not reached:
            raise combined_error([answer for answer in answers if isinstance(answer, Failed)], effect=False)
        return reached

    async def alarms(self) -> Sequence[str]:
        body = wire.encode(wire.AlarmRequest())
        reply = await self._gateway.call(GatewayCall(wire.ALARM, body, _ALARM, linear=False))
        return sorted({alarm.alarm for alarm in reply.alarms})

    async def close(self) -> None:
        self._gateway.close()

    async def _status(self, url: str, within: Duration | None) -> MemberStatus | Failed:
        gateway = self._gateway
        call = GatewayCall(wire.STATUS, b"{}", _STATUS, linear=False)
        sent, deadline_s = gateway.now(), gateway.connection.deadline.total_seconds()
        try:
            async with asyncio.timeout(None if within is None else within.total_seconds()):
                reply = await gateway.call_member(url, call, gateway.endpoints.floor, deadline_s)
        except TimeoutError as error:  # shorter than a call's, so no reason to avoid this member
            return failures.connection(url, error, gateway.login)
        except (StoreAway, StoreError) as error:
            return Failed(str(error), refused=isinstance(error, StoreError))
        if isinstance(reply, Failed):
            return reply
        header = reply.header
        alarms = sorted({name for name in ("NOSPACE", "CORRUPT") for text in reply.errors if name in text})
        return MemberStatus(
            url,
            reply.version,
            header.cluster_id,
            header.member_id,
            reply.leader,
            header.revision,
            reply.raftTerm or header.raft_term,
            reply.dbSize,
            alarms,
            gateway.now() - sent,
        )
