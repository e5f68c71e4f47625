"""etcd's JSON gateway as msgspec structs: what is sent, what comes back, and nothing else.

Bytes travel as base64 and int64 as strings; msgspec reads both straight into the types that the rest of Holdfast
sees (`Entry`), so that a key read from the wire is never copied into a second object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.store.api import Aspect, Compare, Delete, Entry, Event, Get, Operation, Put, prefix_end

T = TypeVar("T")

RANGE, PUT, DELETE, TXN, COMPACT = "/v3/kv/range", "/v3/kv/put", "/v3/kv/deleterange", "/v3/kv/txn", "/v3/kv/compaction"
GRANT, REVOKE, KEEPALIVE = "/v3/lease/grant", "/v3/lease/revoke", "/v3/lease/keepalive"
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
    """etcd's own defaults are left out: a key alone says that its version is 0, which is less for it to read."""

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


class Empty(msgspec.Struct):
    """A request without arguments."""


class Header(msgspec.Struct, frozen=True, gc=False):
    """Who answered, and where it stands. Some replies leave fields out: 0 means "not said"."""

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
        """The operation's result in the shape that `TxnResult` promises."""
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
    """The gateway answers a keepalive as a stream of one; an error may come inside it."""

    header: Header = Header()
    result: Renewal | None = None
    error: ErrorBody | None = None


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
    """What a watch needs of a `Header`: one comes with every event, and most of reading it is reading numbers."""

    revision: int = 0


class WatchResult(msgspec.Struct, gc=False):
    header: WatchHeader = WatchHeader()
    watch_id: int = 0
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[Event] = []


class ErrorBody(msgspec.Struct, gc=False):
    """An error as the gateway words it. 3.4 says `code`, a stream `grpc_code`."""

    message: str = ""
    code: int = 0
    grpc_code: int = 0


class WatchLine(msgspec.Struct, gc=False):
    result: WatchResult = msgspec.field(default_factory=WatchResult)
    error: ErrorBody | None = None


class VersionReply(msgspec.Struct):
    etcdserver: str


encode = msgspec.json.Encoder().encode


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder for one kind of reply; it reads numbers out of strings, as int64 come on this wire."""
    return msgspec.json.Decoder(kind, strict=False)


def span(prefix: bytes) -> tuple[bytes, bytes]:
    """First key and range end of everything under `prefix`; etcd has no empty key, so all keys begin at b"\\0"."""
    return prefix or b"\0", prefix_end(prefix)


def operation(op: Operation) -> RequestOp:
    """One operation of a transaction as the gateway wants it."""
    if isinstance(op, Put):
        return RequestOp(op)
    if isinstance(op, Delete):
        return RequestOp(request_delete_range=DeleteRequest(op.key, op.end or b""))
    assert isinstance(op, Get)
    return RequestOp(request_range=RangeRequest(op.key, op.end or b""))


def comparison(compare: Compare) -> CompareRequest:
    """One condition of a transaction as the gateway wants it."""
    field = _ASPECT_FIELD[compare.aspect]
    return CompareRequest(compare.key, compare.aspect.value, compare.relation, **{field: compare.wanted})  # type: ignore[arg-type]


def transaction(compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]) -> bytes:
    """A whole transaction, encoded."""
    request = TxnRequest(
        [comparison(c) for c in compares], [operation(o) for o in then], [operation(o) for o in otherwise]
    )
    return encode(request)
