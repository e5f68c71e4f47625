"""One member of the in-memory etcd, and its end of each connection.

member.stop(); member.start()            # connections are reset, then refused
member.isolate(); member.rejoin()        # without a quorum: reads of its own copy, no writes, silent streams
member.learner = True                    # serves its status only
member.fall_behind(revision)             # answers from an older copy (C29), until `rejoin`
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime

from holdfast.store.transport import wire
from holdfast.testing.store.fake import FakeStore, StoreWrite
from holdfast.testing.store.gateway import answers
from holdfast.testing.store.gateway.link import SimLink
from holdfast.testing.store.gateway.streams import ServerStream, ServerWatch
from holdfast.testing.store.gateway.tcp import SimTransport
from holdfast.testing.store.keyspace import Keyspace
from holdfast.testing.store.link import Fate

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TOKEN = re.compile(rb"\r\nauthorization: *([^\r]+)", re.IGNORECASE)
_END = b"\r\n\r\n"
LEARNER_TEXT = "etcdserver: rpc not supported for learner"
NO_QUORUM_TEXT = "etcdserver: no leader"
_OPEN_TO_ALL = (wire.STATUS, wire.AUTHENTICATE)


@dataclass(slots=True)
class Accounts:
    """etcd's own authentication: users, and the tokens that are valid now."""

    users: dict[str, str]
    tokens: set[str]
    issued: int = 0

    def expire_tokens(self) -> None:
        self.tokens.clear()


class SimMember:
    """One member. All members of a cluster share one state: what a majority has."""

    def __init__(
        self,
        name: str,
        number: int,
        cluster: FakeStore,
        accounts: Accounts,
        rng: random.Random,
        wall: Callable[[], datetime],
    ) -> None:
        self.name = name
        self.member_id = 0xA0 + number
        self.cluster = cluster
        self.version = "3.4.23"
        self.learner = False
        self.up = True
        self.isolated = False
        self.connections: list[ServerConnection] = []
        self._accounts = accounts
        self._rng = rng
        self._wall = wall
        self._behind: Keyspace | None = None
        cluster.observers.append(self._committed)

    @property
    def keys(self) -> Keyspace:
        """Return what this member reads."""
        return self._behind or self.cluster.keys

    @property
    def leader_id(self) -> int:
        return 0 if self.isolated else 0xA1

    def stop(self) -> None:
        self.up = False
        self.reset_connections()

    def start(self) -> None:
        self.up = True

    def reset_connections(self) -> None:
        for each in list(self.connections):
            each.transport.reset()

    def isolate(self) -> None:
        """Part the member from the majority."""
        self.isolated = True
        self.fall_behind(self.cluster.revision)

    def fall_behind(self, revision: int) -> None:
        """Read from a copy that stopped at `revision`."""
        self._behind = self.cluster.keys.at(revision)

    def rejoin(self) -> None:
        self.isolated, self._behind = False, None
        self.wake()

    def wake(self) -> None:
        """Let streams that stood still catch up."""
        for each in self.connections:
            if each.stream is not None:
                each.stream.wake()

    def login(self, name: str, password: str) -> str | None:
        if self._accounts.users.get(name) != password:
            return None
        self._accounts.issued += 1
        token = f"token-{self._accounts.issued}"
        self._accounts.tokens.add(token)
        return token

    def serve(self, transport: SimTransport, link: SimLink) -> ServerConnection:
        """Accept a connection."""
        connection = ServerConnection(self, transport, link)
        self.connections.append(connection)
        return connection

    def open_stream(self, connection: ServerConnection) -> ServerStream:
        def may_send(watch: ServerWatch) -> bool:
            return self._behind is None and not connection.link.holds_back(connection.transport, watch.first)

        return ServerStream(
            keys=lambda: self.keys,
            header=lambda: dict(answers.header(self)),
            send=lambda line: connection.transport.send_down(b"%x\r\n%b\r\n" % (len(line), line)),
            may_send=may_send,
            rng=self._rng,
            drift=lambda: connection.link.drift,
        )

    def objection(self, path: bytes, token: bytes) -> answers.Answer | None:
        """Return why a request is refused before it is looked at."""
        if path.decode() in _OPEN_TO_ALL:
            return None
        if self.learner:
            return answers.refusal(answers.UNAVAILABLE, LEARNER_TEXT)
        if self.isolated and path.decode() != wire.WATCH:
            return answers.refusal(answers.UNAVAILABLE, NO_QUORUM_TEXT)
        if self._accounts.users and not token:
            return answers.refusal(answers.INVALID, "etcdserver: user name is empty")
        if self._accounts.users and token.decode() not in self._accounts.tokens:
            return answers.refusal(answers.UNAUTHENTICATED, answers.UNKNOWN_TOKEN)
        return None

    def date(self) -> str:
        return format_datetime(self._wall(), usegmt=True)

    def _committed(self, write: StoreWrite) -> None:
        for each in self.connections:
            if each.stream is not None:
                each.stream.committed(write)


class ServerConnection:
    """The member's end of one connection: requests in, replies or a watch stream out."""

    def __init__(self, member: SimMember, transport: SimTransport, link: SimLink) -> None:
        self.member = member
        self.transport = transport
        self.link = link
        self.stream: ServerStream | None = None
        self._buffer = b""
        self._mute = False

    def receive(self, data: bytes) -> None:
        self._buffer += data
        for path, token, body in self._requests():
            self._handle(path, token, body)

    def closed(self) -> None:
        if self in self.member.connections:
            self.member.connections.remove(self)
        self.link.closed(self.transport)
        if self.stream is not None:
            self.stream.close()

    def _requests(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        while (end := self._buffer.find(_END)) >= 0:
            head = self._buffer[:end]
            found = _LENGTH.search(head)
            start = end + len(_END)
            stop = start + (int(found[1]) if found else 0)
            if len(self._buffer) < stop:
                return
            body, self._buffer = self._buffer[start:stop], self._buffer[stop:]
            token = _TOKEN.search(head)
            yield head.split(b" ", 2)[1], token[1] if token else b"", body

    def _handle(self, path: bytes, token: bytes, body: bytes) -> None:
        fate = self.link.fate(answers.CALLS.get(path.decode(), "other"))
        if fate is Fate.REQUEST_LOST or self._mute:
            self._mute = True  # TCP delivers in order: nothing after a lost segment arrives
            return
        if not self.member.up:
            return
        refused = self.member.objection(path, token)
        if fate is Fate.REFUSED:
            refused = answers.refusal(answers.UNAVAILABLE, NO_QUORUM_TEXT)
        if refused is None and path.decode() == wire.WATCH:
            self._watch(body)
            return
        status, reply = refused or answers.answer(self.member, self.link.name, path.decode(), body)
        if fate is Fate.REPLY_LOST:
            self._mute = True
            return
        self._reply(status, reply, fate)

    def _reply(self, status: int, body: bytes, fate: Fate) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nDate: {self.member.date()}\r\n"
        whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        if fate is Fate.REPLY_CUT:
            self.transport.send_down(whole[: self.link.cut_at(len(whole))])
            self.transport.end()
            return
        self.transport.send_down(whole)

    def _watch(self, body: bytes) -> None:
        self.transport.send_down(
            f"HTTP/1.1 200 OK\r\nDate: {self.member.date()}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        self.stream = self.member.open_stream(self)
        self.stream.create(body)
