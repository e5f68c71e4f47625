"""Requests and replies of etcd's JSON gateway as msgspec structs.

Bytes travel as base64 and int64 as strings; msgspec decodes both straight into the types of `api` (`Entry`), so that a
key read from the wire is never copied into a second object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from holdfast.store.api import Aspect, Compare, Delete, Entry, Event, Get, Operation, Put

T = TypeVar("T")
E = TypeVar("E")

RANGE, PUT, DELETE, TXN, COMPACT = "/v3/kv/range", "/v3/kv/put", "/v3/kv/deleterange", "/v3/kv/txn", "/v3/kv/compaction"
GRANT, REVOKE, KEEPALIVE = "/v3/lease/grant", "/v3/lease/revoke", "/v3/lease/keepalive"
TIME_TO_LIVE = "/v3/lease/timetolive"
STATUS, ALARM = "/v3/maintenance/status", "/v3/maintenance/alarm"
WATCH, AUTHENTICATE = "/v3/watch", "/v3/auth/authenticate"

_ASPECT_FIELD = {
    Aspect.CREATE_REVISION: "create_revision",
    Aspect.MOD_REVISION: "mod_revision",
    Aspect.VERSION: "version",
    Aspect.VALUE: "value",
    Aspect.LEASE: "lease",
}


class RangeRequest(msgspec.Struct, omit_defaults=True):
    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0
    keys_only: bool = False
    count_only: bool = False


class PutRequest(msgspec.Struct, omit_defaults=True):
    key: bytes
    value: bytes = b""
    lease: int = 0


class DeleteRequest(msgspec.Struct, omit_defaults=True):
    key: bytes
    range_end: bytes = b""


class RequestOp(msgspec.Struct, omit_defaults=True):
    request_put: Put | None = None
    request_delete_range: DeleteRequest | None = None
    request_range: RangeRequest | None = None


class CompareRequest(msgspec.Struct, omit_defaults=True):
    """A comparison without etcd's defaults: a bare key means "version 0", which is less for etcd to parse."""

    key: bytes
    target: str = "VERSION"
    result: str = "EQUAL"
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0
    value: bytes = b""


class TxnRequest(msgspec.Struct, omit_defaults=True):
    compare: list[CompareRequest] = []
    success: list[RequestOp] = []
    failure: list[RequestOp] = []


class CompactRequest(msgspec.Struct):
    revision: int


class GrantRequest(msgspec.Struct):
    TTL: int


class LeaseRequest(msgspec.Struct):
    ID: int


class AuthRequest(msgspec.Struct):
    name: str
    password: str


class AlarmRequest(msgspec.Struct):
    action: str = "GET"


class CreateRequest(msgspec.Struct, omit_defaults=True):
    key: bytes
    range_end: bytes = b""
    start_revision: int = 0
    watch_id: int = 0


class WatchRequest(msgspec.Struct):
    create_request: CreateRequest


class Header(msgspec.Struct, frozen=True, gc=False):
    """The member that answered, and its revision and raft term. 0 means "not given": some replies omit fields."""

    cluster_id: int = 0
    member_id: int = 0
    revision: int = 0
    raft_term: int = 0


class RangeReply(msgspec.Struct):
    header: Header
    kvs: list[Entry] = []
    more: bool = False
    count: int = 0


class PutReply(msgspec.Struct):
    header: Header


class DeleteReply(msgspec.Struct):
    header: Header
    deleted: int = 0


class ResponseOp(msgspec.Struct):
    response_put: PutReply | None = None
    response_delete_range: DeleteReply | None = None
    response_range: RangeReply | None = None

    def result(self) -> int | Sequence[Entry]:
        """Return the operation's result in the shape of `TxnResult.results`."""
        if self.response_put is not None:
            return self.response_put.header.revision
        if self.response_delete_range is not None:
            return self.response_delete_range.deleted
        return self.response_range.kvs if self.response_range is not None else ()


class TxnReply(msgspec.Struct):
    header: Header
    succeeded: bool = False
    responses: list[ResponseOp] = []


class CompactReply(msgspec.Struct):
    header: Header


class GrantReply(msgspec.Struct):
    header: Header
    ID: int = 0
    TTL: int = 0


class Renewal(msgspec.Struct):
    header: Header = Header()
    ID: int = 0
    TTL: int = 0


class RenewReply(msgspec.Struct):
    """Answer to a keepalive: a stream of one result, which may be an error."""

    header: Header = Header()
    result: Renewal | None = None
    error: ErrorBody | None = None


class LeaseTimeReply(msgspec.Struct):
    header: Header = Header()
    TTL: int = 0
    """−1 if the lease is gone."""
    grantedTTL: int = 0  # noqa: N815 -- etcd's spelling


class StatusReply(msgspec.Struct):
    header: Header
    version: str = ""
    dbSize: int = 0  # noqa: N815 -- etcd's spelling
    leader: int = 0
    raftTerm: int = 0  # noqa: N815 -- etcd's spelling
    errors: list[str] = []


class Alarm(msgspec.Struct):
    alarm: str = "NONE"


class AlarmReply(msgspec.Struct):
    header: Header = Header()
    alarms: list[Alarm] = []


class AuthReply(msgspec.Struct):
    header: Header = Header()
    token: str = ""


class WatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The only field of `Header` that a watch needs: decoding the others would dominate the cost of an event."""

    revision: int = 0


class UnreadEntry(msgspec.Struct, frozen=True, gc=False):
    """An `Entry` with its value as it came: decoding the value of a change that nobody asked for costs more than all
    the rest of it."""

    key: bytes
    value: msgspec.Raw = msgspec.Raw(b'""')
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


class UnreadEvent(msgspec.Struct, frozen=True, gc=False):
    """An `Event` of a stream from which only some keys are wanted."""

    kv: UnreadEntry
    type: str = "PUT"

    @property
    def mod_revision(self) -> int:
        return self.kv.mod_revision

    def read(self) -> Event:
        kv = self.kv
        value = _VALUE.decode(kv.value)
        return Event(Entry(kv.key, value, kv.create_revision, kv.mod_revision, kv.version, kv.lease), self.type)


_VALUE = msgspec.json.Decoder(bytes)


class WatchResult(msgspec.Struct, Generic[E], gc=False):
    header: WatchHeader = WatchHeader()
    watch_id: int = 0
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[E] = []


class ErrorBody(msgspec.Struct, gc=False):
    """An error of the gateway; etcd 3.4 gives `code`, a stream `grpc_code`."""

    message: str = ""
    code: int = 0
    grpc_code: int = 0


class StreamErrorBody(msgspec.Struct, gc=False):
    """An error of a streaming call."""

    error: ErrorBody


class WatchLine(msgspec.Struct, Generic[E], gc=False):
    result: WatchResult[E] = msgspec.field(default_factory=WatchResult)
    error: ErrorBody | None = None


class VersionReply(msgspec.Struct):
    etcdserver: str


encode = msgspec.json.Encoder().encode


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return a decoder for one kind of reply; it reads int64 from strings."""
    return msgspec.json.Decoder(kind, strict=False)


def operation(op: Operation) -> RequestOp:
    """Convert one operation of a transaction."""
    if isinstance(op, Put):
        return RequestOp(op)
    if isinstance(op, Delete):
        return RequestOp(request_delete_range=DeleteRequest(op.key, op.end or b""))
    assert isinstance(op, Get)
    return RequestOp(request_range=RangeRequest(op.key, op.end or b""))


def comparison(compare: Compare) -> CompareRequest:
    """Convert one condition of a transaction."""
    field = _ASPECT_FIELD[compare.aspect]
    return CompareRequest(compare.key, compare.aspect.value, compare.relation, **{field: compare.wanted})  # type: ignore[arg-type]


def transaction(compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]) -> bytes:
    """Encode a transaction."""
    request = TxnRequest(
        [comparison(c) for c in compares], [operation(o) for o in then], [operation(o) for o in otherwise]
    )
    return encode(request)
