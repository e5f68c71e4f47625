"""Calls of etcd's JSON gateway, tried at one member after another until one answers or the deadline is over.

Promises: every call ends by its deadline; a call that may have had an effect is never repeated; an answer that goes
backwards is rejected (`endpoints`); a refused token is renewed once; an error is one sentence (`failures`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.model.base.time import Duration, Instant
from holdfast.store.api import StoreAway, StoreError, StoreRefused
from holdfast.store.boottime import Now
from holdfast.store.contact import StoreContact
from holdfast.store.transport import failures, wire
from holdfast.store.transport.endpoints import MemberList, RevisionFloor, spread
from holdfast.store.transport.failures import Failed, Login
from holdfast.store.transport.http import ConnectionLost, ConnectionPool, MemberAddress, NotSent, Reply
from holdfast.store.transport.tls import TlsContext, TlsFiles


class _Headed(Protocol):
    header: wire.Header


R = TypeVar("R", bound=_Headed)


@dataclass(frozen=True, slots=True)
class Connection:
    """Endpoints, certificates and credentials of one etcd cluster."""

    endpoints: Sequence[str]
    host: str = ""
    """Name of this host, which decides the order of the endpoints; without it they are called as configured."""
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password: Callable[[], str] | None = None
    """Called each time a token is fetched, so that a password changed on disk takes effect."""
    deadline: Duration = Duration(seconds=5)

    def tls(self) -> TlsContext | None:
        """Return the TLS context for https endpoints. Raises `StoreRefused` when a file is unusable."""
        if not any(url.startswith("https:") for url in self.endpoints):
            return None
        return TlsContext(TlsFiles(self.ca, self.cert, self.key))


@dataclass(frozen=True, slots=True)
class GatewayCall(Generic[R]):
    """One call. `effect`: it changes something, so it is sent only once. `linear`: its answer must not be older than
    any answer seen before; a member's status of itself may be."""

    path: str
    body: bytes
    reply: msgspec.json.Decoder[R]
    effect: bool = False
    linear: bool = True
    authenticated: bool = True


class _Request(NamedTuple):
    method: str
    path: str
    body: bytes = b""
    token: str = ""


@dataclass(slots=True)
class _Attempt:
    """Remembers whether the request was sent: before that, a timeout is certain to have had no effect."""

    sent: bool = False


class Tokens:
    """The token of etcd's own authentication: fetched once, shared by all calls, renewed when a member refuses it.

    Authenticating costs a member a quarter of a second of CPU (the hash is slow on purpose), so only one call at a time
    fetches a new token. Without a user the token is empty and nothing is fetched.
    """

    def __init__(self, authenticate: Callable[[], Awaitable[str]] | None) -> None:
        self._authenticate = authenticate
        self._token = ""
        self._lock = asyncio.Lock()

    async def current(self) -> str:
        if self._authenticate is None or self._token:
            return self._token
        async with self._lock:
            if not self._token:
                self._token = await self._authenticate()
            return self._token

    def renewable(self, refused: str) -> bool:
        """Drop a token that a member refused. Return False when a new one would not help."""
        if self._authenticate is None:
            return False
        if self._token == refused:
            self._token = ""
        return True


class Gateway:
    """All members of one etcd cluster behind one `call`."""

    def __init__(self, connection: Connection, now: Now) -> None:
        self.connection = connection
        self.now = now
        self.tls = connection.tls()
        self.login = Login(certificate=connection.cert is not None, user=connection.user or "")
        self.urls = tuple(dict.fromkeys(MemberAddress.parse(url).url for url in connection.endpoints))
        """The members as configured; `endpoints` has them in the order of this host."""
        self.endpoints = MemberList(spread(self.urls, connection.host))
        self.tokens = Tokens(self._authenticate if connection.user else None)
        self.dated: tuple[bytes, Instant] | None = None
        """The Date header of the last answer, and when it arrived."""
        self.contact = StoreContact(now())
        self._pools = {url: ConnectionPool(MemberAddress.parse(url), self.tls_context) for url in self.urls}

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the context for a new connection."""
        return self.tls.current() if self.tls is not None else None

    async def call(self, call: GatewayCall[R]) -> R:
        """Return the answer of the first member that gives one. Raises `StoreAway` or a `StoreError`."""
        clock = asyncio.get_running_loop().time
        until = clock() + self.connection.deadline.total_seconds()
        asked = self.endpoints.floor
        failed: list[Failed] = []
        now = self.now()
        if self.tls is not None:
            self.tls.check(now)
        order = self.endpoints.order(now)
        for left, url in zip(range(len(order), 0, -1), order, strict=True):
            share = (until - clock()) / left
            outcome = await self.call_member(url, call, asked, share)
            if not isinstance(outcome, Failed):
                return outcome
            failed.append(outcome)
            if call.effect and outcome.uncertain:
                break
        raise combined_error(failed, call.effect)

    async def call_member(self, url: str, call: GatewayCall[R], asked: RevisionFloor, timeout: float) -> R | Failed:
        """Call one member only. Raises a `StoreError` if every other member would refuse as well."""
        attempt = _Attempt()
        try:
            async with asyncio.timeout(timeout):
                outcome = await self._exchange(url, call, attempt)
        except TimeoutError as error:
            outcome = Failed(failures.connection(url, error, self.login).why, uncertain=attempt.sent)
        if isinstance(outcome, Failed):
            self.endpoints.failed(url, self.now())
            return outcome
        if call.linear:
            objection = self.endpoints.judge(url, outcome.header, asked, self.now())
            if objection is not None:
                return Failed(f"{url} {objection}; it is stale or was restored, and is skipped", uncertain=True)
        return outcome

    async def _exchange(self, url: str, call: GatewayCall[R], attempt: _Attempt) -> R | Failed:
        for last in (False, True):
            token = await self.tokens.current() if call.authenticated else ""
            reply = await self._send(url, _Request("POST", call.path, call.body, token), call, attempt)
            if isinstance(reply, Failed):
                return reply
            self.contact.last = self.now()
            if reply.date:
                self.dated = reply.date, self.now()
            if reply.status == 200:
                return _decode(url, reply, call)
            finding = failures.answer(url, reply.status, reply.body, self.login)
            if finding is None:
                version = await self._send(url, _Request("GET", "/version"), call, attempt)
                return version if isinstance(version, Failed) else failures.not_found(url, version.status, version.body)
            if isinstance(finding, StoreError):
                raise finding
            if isinstance(finding, Failed):
                return finding
            if last or not self.tokens.renewable(token):
                break
        return Failed(f"{url} does not accept our token; check store.user and store.password_file", refused=True)

    async def _send(self, url: str, request: _Request, call: GatewayCall[R], attempt: _Attempt) -> Reply | Failed:
        pool = self._pools[url]
        try:
            while True:
                connection, fresh = await pool.take()
                attempt.sent = True
                try:
                    return await connection.request(*request)
                except ConnectionLost:
                    # The server may have closed an idle connection: only a fresh one tells.
                    if fresh or call.effect:
                        raise
                finally:
                    pool.give_back(connection)
        except NotSent as error:
            return failures.connection(url, error.__cause__ or error, self.login)
        except ConnectionLost as error:
            return failures.lost(url, str(error), error.__cause__, self.login)

    async def _authenticate(self) -> str:
        password = self.connection.password() if self.connection.password is not None else ""
        body = wire.encode(wire.AuthRequest(self.connection.user, password))
        call = GatewayCall(wire.AUTHENTICATE, body, _AUTH, linear=False, authenticated=False)
        return (await self.call(call)).token

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()


_AUTH = wire.decoder(wire.AuthReply)


def combined_error(failed: Sequence[Failed], effect: bool) -> StoreAway | StoreRefused:
    """Combine the failures of all members into one error; it is a refusal only if every member refuses us."""
    whys = "; ".join(dict.fromkeys(failure.why for failure in failed))
    if all(failure.refused for failure in failed):
        return StoreRefused(whys)
    return StoreAway(whys, uncertain=effect and any(failure.uncertain for failure in failed))


def _decode(url: str, reply: Reply, call: GatewayCall[R]) -> R | Failed:
    try:
        return call.reply.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return failures.not_etcd(url, reply.status)
