"""grpc: the standard health check (grpc.health.v1.Health/Check), over HTTP/2 without TLS.

One connection, one request. The response message in the DATA frame decides; headers are compressed, and are not read.
A server that answers with headers only (unknown service, no such method) has refused, and fails.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from holdfast.balancer.probing.checks import Carrier, CheckFiles, CheckType, Conversation, ProbeVerdict
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_ACK, _END_STREAM, _END_HEADERS, _PADDED = 1, 1, 4, 8
_STREAM = 1
_LIMIT = 64 << 10
_STATUSES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_SERVING = 1
_WAIT = b""


class GrpcConversation:
    """One health check of one service."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._received = b""
        self._message = b""

    def start(self) -> bytes:
        return self._request

    def feed(self, data: bytes) -> bytes | ProbeVerdict:
        self._received += data
        if len(self._received) > _LIMIT:
            return _broken("the answer is longer than 64 KiB")
        answers = b""
        for kind, flags, stream, payload in self._frames():
            answer = self._on_frame(kind, flags, stream, payload)
            if isinstance(answer, ProbeVerdict):
                return answer
            answers += answer
        if not data:
            return _broken("closed without an answer")
        return answers or _WAIT

    def timed_out(self) -> ProbeVerdict:
        return ProbeVerdict(False, ProbeCode.L7TOUT)

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        while len(self._received) >= 9:
            length = int.from_bytes(self._received[:3], "big")
            if len(self._received) < 9 + length:
                return
            kind, flags, stream = struct.unpack_from(">BBI", self._received, 3)
            payload, self._received = self._received[9 : 9 + length], self._received[9 + length :]
            yield kind, flags, stream & 0x7FFF_FFFF, payload

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes | ProbeVerdict:
        if kind == _SETTINGS and not flags & _ACK:
            return _frame(_SETTINGS, _ACK, 0, b"")
        if kind == _PING and not flags & _ACK:
            return _frame(_PING, _ACK, 0, payload)
        if kind in (_RESET, _GOAWAY):
            return _broken("the server ended the connection")
        if kind == _DATA and stream == _STREAM:
            self._message += _without_padding(flags, payload)
            if (verdict := _verdict(self._message)) is not None:
                return verdict
        if stream == _STREAM and kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            return _broken("the server refused the health check: it knows no such service, or has no health service")
        return _WAIT


def _verdict(message: bytes) -> ProbeVerdict | None:
    """Judge a message of gRPC: a flag, the length, and the response with its status; None while it is incomplete."""
    if len(message) < 5:
        return None
    compressed, length = struct.unpack_from(">BI", message)
    body = message[5 : 5 + length]
    if len(body) < length and length <= _LIMIT:
        return None
    if compressed or (body and (len(body) != 2 or body[0] != 0x08)):
        return _broken("the answer is not a health check response")
    status = body[1] if body else 0
    if status == _SERVING:
        return ProbeVerdict(True, ProbeCode.L7OK)
    return ProbeVerdict(False, ProbeCode.L7STS, f"the service is {_STATUSES.get(status, f'status {status}')}")


def _broken(detail: str) -> ProbeVerdict:
    return ProbeVerdict(False, ProbeCode.L7RSP, detail)


def _without_padding(flags: int, payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & _PADDED and payload else payload


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header that is neither compressed nor remembered."""
    return b"\x10" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    """A string with its length in 7 bits, continued where it is longer."""
    data, length = text.encode(), len(text.encode())
    if length < 127:
        return bytes([length]) + data
    rest, head = length - 127, b"\x7f"
    while rest >= 128:
        head += bytes([rest % 128 + 128])
        rest //= 128
    return head + bytes([rest]) + data


def request(target: TargetSpec) -> bytes:
    """Everything that is sent at the start of the connection."""
    address = f"[{target.address}]" if ":" in target.address else target.address
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": target.check.host or f"{address}:{target.port}",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    service = target.check.service.encode()
    asked = b"\x0a" + bytes([len(service)]) + service if service else b""
    message = struct.pack(">BI", 0, len(asked)) + asked
    block = b"".join(_literal(name, value) for name, value in headers.items())
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, _STREAM, block)
        + _frame(_DATA, _END_STREAM, _STREAM, message)
    )


def prepare(target: TargetSpec, _files: CheckFiles) -> Callable[[], Conversation]:
    said = request(target)
    return lambda: GrpcConversation(said)


CHECK = CheckType(Carrier.STREAM, prepare)
