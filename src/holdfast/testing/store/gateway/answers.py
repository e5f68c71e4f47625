"""Answers of one member to requests of the gateway: path and body in, status and body out.

Promises what etcd 3.4 answers, in its words: the client classifies refusals by their text. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.model.base.time import seconds
from holdfast.store.api import (
    Aspect,
    Compacted,
    Compare,
    Delete,
    Get,
    LeaseGone,
    NoSpace,
    Operation,
    Put,
    StoreError,
    TooLarge,
)
from holdfast.store.transport import wire
from holdfast.testing.store.fake import NO_SPACE, FakeStore
from holdfast.testing.store.gateway.encoding import as_json, entries
from holdfast.testing.store.keyspace import Keyspace

Answer = tuple[int, bytes]
INVALID, NOT_FOUND, EXHAUSTED, PRECONDITION, OUT_OF_RANGE, UNAVAILABLE, UNAUTHENTICATED = 3, 5, 8, 9, 11, 14, 16
_STATUS = {INVALID: 400, NOT_FOUND: 404, EXHAUSTED: 429, PRECONDITION: 412, OUT_OF_RANGE: 400, UNAVAILABLE: 503}
_STATUS[UNAUTHENTICATED] = 401
UNKNOWN_TOKEN = "etcdserver: invalid auth token"  # noqa: S105 -- a refusal, not a token


class Answering(Protocol):
    """The member that answers: its names, what it reads, and the cluster that it writes to."""

    @property
    def cluster(self) -> FakeStore: ...
    @property
    def keys(self) -> Keyspace: ...
    @property
    def member_id(self) -> int: ...
    @property
    def leader_id(self) -> int: ...
    @property
    def version(self) -> str: ...
    def login(self, name: str, password: str) -> str | None: ...


def refusal(code: int, text: str) -> Answer:
    """Return an error as the gateway of etcd 3.4 words it."""
    return _STATUS[code], as_json({"error": text, "message": text})[:-1] + b',"code":%d}' % code


def header(member: Answering) -> Mapping[str, int]:
    keys = member.keys
    return {
        "cluster_id": 0xC1,
        "member_id": member.member_id,
        "revision": keys.revision,
        "raft_term": member.cluster.raft_term,
    }


def answer(member: Answering, client: str, path: str, body: bytes) -> Answer:
    """Answer one call of `client`."""
    method = _METHODS.get(path)
    if method is None:
        return 404, b"404 page not found\n"
    try:
        return 200, as_json(method(member, client, body))
    except StoreError as error:
        return refusal(*_words(error))


def _words(error: StoreError) -> tuple[int, str]:
    text = str(error)
    if isinstance(error, Compacted):
        return OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"
    if isinstance(error, LeaseGone):
        return NOT_FOUND, "etcdserver: requested lease not found"
    if isinstance(error, NoSpace):
        return EXHAUSTED, "etcdserver: mvcc: database space exceeded"
    if isinstance(error, TooLarge):
        many = "operations" in text
        return INVALID, "etcdserver: too many operations in txn request" if many else "etcdserver: request is too large"
    if "not happened" in text:
        return OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision"
    if "empty" in text:
        return INVALID, "etcdserver: key is not provided"
    if "password" in text:
        return INVALID, f"etcdserver: {text}"
    return INVALID, "etcdserver: duplicate key given in txn request"


class _TxnBody(msgspec.Struct):
    compare: list[wire.CompareRequest] = []
    success: list[wire.RequestOp] = []
    failure: list[wire.RequestOp] = []


_RANGE = wire.decoder(wire.RangeRequest)
_PUT = wire.decoder(wire.PutRequest)
_DELETE = wire.decoder(wire.DeleteRequest)
_TXN = wire.decoder(_TxnBody)
_COMPACT = wire.decoder(wire.CompactRequest)
_GRANT = wire.decoder(wire.GrantRequest)
_LEASE = wire.decoder(wire.LeaseRequest)
_AUTH = wire.decoder(wire.AuthRequest)
Fields = Mapping[str, object]


def _range(member: Answering, _client: str, body: bytes) -> Fields:
    member.cluster.expire()
    return {"header": header(member), **_read(member.keys, _RANGE.decode(body))}


def _read(keys: Keyspace, asked: wire.RangeRequest) -> Fields:
    if not asked.key:
        raise StoreError("a key is empty")
    found = keys.range(asked.key, asked.range_end or None, asked.revision)
    shown = found[: asked.limit] if asked.limit else found
    return {
        "kvs": None if asked.count_only else entries(shown, keys_only=asked.keys_only),
        "more": len(shown) < len(found),
        "count": len(found),
    }


def _put(member: Answering, client: str, body: bytes) -> Fields:
    asked = _PUT.decode(body)
    member.cluster.apply(client, (), [Put(asked.key, asked.value, asked.lease)])
    return {"header": header(member)}


def _delete(member: Answering, client: str, body: bytes) -> Fields:
    asked = _DELETE.decode(body)
    deleted = member.cluster.delete(client, asked.key, asked.range_end or None)
    return {"header": header(member), "deleted": deleted}


def _txn(member: Answering, client: str, body: bytes) -> Fields:
    asked = _TXN.decode(body)
    compares = [_compare(each) for each in asked.compare]
    then, otherwise = [_operation(each) for each in asked.success], [_operation(each) for each in asked.failure]
    if all(isinstance(op, Get) for op in (*then, *otherwise)):
        return _reading_txn(member, asked, compares)
    result = member.cluster.apply(client, compares, then, otherwise)
    ran = zip(then if result.succeeded else otherwise, result.results, strict=True)
    return {
        "header": {**header(member), "revision": result.revision},
        "succeeded": result.succeeded,
        "responses": [_result(op, found, result.revision) for op, found in ran],
    }


def _reading_txn(member: Answering, asked: _TxnBody, compares: Sequence[Compare]) -> Fields:
    """Answer a transaction that only reads, from what this member has and at the revisions that it names."""
    member.cluster.expire()
    reads = [each.request_range for each in (*asked.success, *asked.failure) if each.request_range is not None]
    gets = [Get(each.key, each.range_end or None) for each in reads]
    count = len(asked.success)
    succeeded = member.keys.commit(compares, gets[:count], gets[count:], {})[0].succeeded
    head = {"revision": member.keys.revision}
    found = [{"header": head, **_read(member.keys, each)} for each in (reads[:count] if succeeded else reads[count:])]
    return {
        "header": header(member),
        "succeeded": succeeded,
        "responses": [msgspec.Raw(as_json({"response_range": each})) for each in found],
    }


def _compare(asked: wire.CompareRequest) -> Compare:
    wanted = {
        "CREATE": asked.create_revision,
        "MOD": asked.mod_revision,
        "VERSION": asked.version,
        "VALUE": asked.value,
        "LEASE": asked.lease,
    }[asked.target]
    return Compare(asked.key, Aspect(asked.target), wanted, asked.result)  # type: ignore[arg-type]


def _operation(asked: wire.RequestOp) -> Operation:
    if asked.request_put is not None:
        return asked.request_put
    if asked.request_delete_range is not None:
        return Delete(asked.request_delete_range.key, asked.request_delete_range.range_end or None)
    assert asked.request_range is not None
    return Get(asked.request_range.key, asked.request_range.range_end or None)


def _result(op: Operation, found: object, revision: int) -> msgspec.Raw:
    head = {"revision": revision}
    match op:
        case Put():
            fields: Fields = {"response_put": {"header": head}}
        case Delete():
            fields = {"response_delete_range": {"header": head, "deleted": found}}
        case Get():
            assert isinstance(found, list)
            fields = {"response_range": {"header": head, "kvs": entries(found), "count": len(found)}}
    return msgspec.Raw(as_json(fields))


def _compact(member: Answering, _client: str, body: bytes) -> Fields:
    member.cluster.keys.compact(_COMPACT.decode(body).revision)
    return {"header": header(member)}


def _grant(member: Answering, _client: str, body: bytes) -> Fields:
    ttl = _GRANT.decode(body).TTL
    return {"header": header(member), "ID": member.cluster.grant(seconds(ttl)), "TTL": ttl}


def _renew(member: Answering, _client: str, body: bytes) -> Fields:
    lease = _LEASE.decode(body).ID
    try:
        left = int(member.cluster.renew(lease).total_seconds())
    except LeaseGone:
        left = 0
    return {"result": {"header": header(member), "ID": lease, "TTL": left}}


def _lease_time(member: Answering, _client: str, body: bytes) -> Fields:
    lease = _LEASE.decode(body).ID
    try:
        found = member.cluster.lease_time(lease)
    except LeaseGone:
        return {"header": header(member), "ID": lease, "TTL": -1}
    ttl, left = int(found.ttl.total_seconds()), int(found.left.total_seconds())
    return {"header": header(member), "ID": lease, "TTL": left, "grantedTTL": ttl}


def _revoke(member: Answering, client: str, body: bytes) -> Fields:
    member.cluster.revoke(client, _LEASE.decode(body).ID)
    return {"header": header(member)}


def _status(member: Answering, _client: str, _body: bytes) -> Fields:
    (found,) = member.cluster.status(member.keys)
    errors = [f"memberID:{member.member_id} alarm:{name} " for name in found.alarms]
    term = member.cluster.raft_term
    fields = {"version": member.version, "dbSize": found.db_size, "leader": member.leader_id, "raftTerm": term}
    return {"header": header(member), **fields, "errors": errors}


def _alarms(member: Answering, _client: str, _body: bytes) -> Fields:
    found = [{"memberID": str(member.member_id), "alarm": name} for name in member.cluster.alarms if name == NO_SPACE]
    return {"header": header(member), "alarms": found}


def _authenticate(member: Answering, _client: str, body: bytes) -> Fields:
    asked = _AUTH.decode(body)
    token = member.login(asked.name, asked.password)
    if token is None:
        raise StoreError("authentication failed, invalid user ID or password")
    return {"header": header(member), "token": token}


_METHODS: Mapping[str, Callable[[Answering, str, bytes], Fields]] = {
    wire.RANGE: _range,
    wire.PUT: _put,
    wire.DELETE: _delete,
    wire.TXN: _txn,
    wire.COMPACT: _compact,
    wire.GRANT: _grant,
    wire.KEEPALIVE: _renew,
    wire.TIME_TO_LIVE: _lease_time,
    wire.REVOKE: _revoke,
    wire.STATUS: _status,
    wire.ALARM: _alarms,
    wire.AUTHENTICATE: _authenticate,
}
CALLS: Mapping[str, str] = {
    wire.RANGE: "list",
    wire.PUT: "put",
    wire.DELETE: "delete",
    wire.TXN: "txn",
    wire.COMPACT: "compact",
    wire.GRANT: "grant",
    wire.KEEPALIVE: "renew",
    wire.TIME_TO_LIVE: "lease_time",
    wire.REVOKE: "revoke",
    wire.STATUS: "status",
    wire.ALARM: "alarms",
    wire.AUTHENTICATE: "authenticate",
    wire.WATCH: "watch",
}
"""Path → name of the store's method that calls it. Reads of one key are lists, too, on the wire."""
