"""One question to etcd's JSON gateway, put to one member after another until one answers or the deadline is over.

Promises: every call ends by its deadline; a question that may have had an effect is never put twice; an answer that
goes backwards is not believed (`endpoints`); a refused token is renewed once; a failure is one sentence (`explain`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.model.base.time import Duration, Instant
from holdfast.store.api import StoreAway, StoreError, StoreRefused
from holdfast.store.boottime import Now
from holdfast.store.transport import failures as explain
from holdfast.store.transport import wire
from holdfast.store.transport.auth import Tokens
from holdfast.store.transport.endpoints import MemberList, RevisionFloor
from holdfast.store.transport.failures import Failed, Login
from holdfast.store.transport.http import ConnectionLost, ConnectionPool, MemberAddress, NotSent, Reply


class _Headed(Protocol):
    header: wire.Header


R = TypeVar("R", bound=_Headed)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one etcd cluster."""

    endpoints: Sequence[str]
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password: Callable[[], str] | None = None
    """Asked each time a token is needed, so that a password renewed on disk is seen."""
    deadline: Duration = Duration(seconds=5)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for https endpoints. Raises `StoreRefused` when a file does not fit."""
        if not any(url.startswith("https:") for url in self.endpoints):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise StoreRefused(f"store.ca_file {self.ca} is not a readable CA certificate ({error})") from error
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except (OSError, ssl.SSLError) as error:
                raise StoreRefused(
                    f"store.cert_file {self.cert} and store.key_file {self.key} are not a usable pair ({error})"
                ) from error
        return context


@dataclass(frozen=True, slots=True)
class GatewayCall(Generic[R]):
    """One call. `effect`: it changes something, so it is put only once. `linear`: the answer stands at or after
    everything seen before; a member's view of itself need not."""

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
    """Whether anything was sent yet: until then, a deadline that passes leaves no doubt."""

    sent: bool = False


class Gateway:
    """All members of one etcd cluster behind one `call`."""

    def __init__(self, connection: Connection, now: Now) -> None:
        self.connection = connection
        self.now = now
        self.tls = connection.tls()
        self.login = Login(certificate=connection.cert is not None, user=bool(connection.user))
        self.endpoints = MemberList(tuple(dict.fromkeys(MemberAddress.parse(url).url for url in connection.endpoints)))
        self.tokens = Tokens(self._authenticate if connection.user else None)
        self.dated: tuple[bytes, Instant] | None = None
        """The date of the last answer, and when it came."""
        self._pools = {url: ConnectionPool(MemberAddress.parse(url), self.tls) for url in self.endpoints.urls}

    async def call(self, question: GatewayCall[R]) -> R:
        """The answer of the first member that gives one. Raises `StoreAway` or a `StoreError`."""
        clock = asyncio.get_running_loop().time
        until = clock() + self.connection.deadline.total_seconds()
        asked = self.endpoints.floor
        failures: list[Failed] = []
        order = self.endpoints.order(self.now())
        for left, url in zip(range(len(order), 0, -1), order, strict=True):
            share = (until - clock()) / left
            outcome = await self.ask(url, question, asked, share)
            if not isinstance(outcome, Failed):
                return outcome
            failures.append(outcome)
            if question.effect and outcome.uncertain:
                break
        raise verdict(failures, question.effect)

    async def ask(self, url: str, question: GatewayCall[R], asked: RevisionFloor, timeout: float) -> R | Failed:
        """Puts the question to one member only. Raises a `StoreError` that no other member would answer differently."""
        attempt = _Attempt()
        try:
            async with asyncio.timeout(timeout):
                outcome = await self._exchange(url, question, attempt)
        except TimeoutError as error:
            outcome = Failed(explain.connection(url, error, self.login).why, uncertain=attempt.sent)
        if isinstance(outcome, Failed):
            self.endpoints.failed(url, self.now())
            return outcome
        if question.linear:
            objection = self.endpoints.judge(url, outcome.header, asked, self.now())
            if objection is not None:
                return Failed(f"{url} {objection}; it is stale or was restored, and is left", uncertain=True)
        return outcome

    async def _exchange(self, url: str, question: GatewayCall[R], attempt: _Attempt) -> R | Failed:
        for last in (False, True):
            token = await self.tokens.current() if question.authenticated else ""
            reply = await self._send(url, _Request("POST", question.path, question.body, token), question, attempt)
            if isinstance(reply, Failed):
                return reply
            if reply.date:
                self.dated = reply.date, self.now()
            if reply.status == 200:
                return _decode(url, reply, question)
            finding = explain.answer(url, reply.status, reply.body, self.login)
            if finding is None:
                look = await self._send(url, _Request("GET", "/version"), question, attempt)
                return look if isinstance(look, Failed) else explain.not_found(url, look.status, look.body)
            if isinstance(finding, StoreError):
                raise finding
            if isinstance(finding, Failed):
                return finding
            if last or not self.tokens.renewable(token):
                break
        return Failed(f"{url} does not accept our token; check store.user and store.password_file", refused=True)

    async def _send(self, url: str, request: _Request, question: GatewayCall[R], attempt: _Attempt) -> Reply | Failed:
        pool = self._pools[url]
        try:
            while True:
                connection, fresh = await pool.take()
                attempt.sent = True
                try:
                    return await connection.request(*request)
                except ConnectionLost:
                    # A kept connection may have been closed while it was idle; a new one tells what is true.
                    if fresh or question.effect:
                        raise
                finally:
                    pool.give_back(connection)
        except NotSent as error:
            return explain.connection(url, error.__cause__ or error, self.login)
        except ConnectionLost as error:
            return explain.lost(url, str(error), error.__cause__, self.login)

    async def _authenticate(self) -> str:
        password = self.connection.password() if self.connection.password is not None else ""
        body = wire.encode(wire.AuthRequest(self.connection.user, password))
        question = GatewayCall(wire.AUTHENTICATE, body, _AUTH, linear=False, authenticated=False)
        return (await self.call(question)).token

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()


_AUTH = wire.decoder(wire.AuthReply)


def verdict(failures: Sequence[Failed], effect: bool) -> StoreAway | StoreRefused:
    """All members failed: what to say. Only when every one refuses us is it a refusal."""
    whys = "; ".join(dict.fromkeys(failure.why for failure in failures))
    if all(failure.refused for failure in failures):
        return StoreRefused(whys)
    return StoreAway(whys, uncertain=effect and any(failure.uncertain for failure in failures))


def _decode(url: str, reply: Reply, question: GatewayCall[R]) -> R | Failed:
    try:
        return question.reply.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return explain.not_etcd(url, reply.status)
