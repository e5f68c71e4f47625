"""icmp: one echo request, one reply with the same payload.

A token in the payload identifies the probe, because a ping socket rewrites the identifier and a raw socket receives the
replies to all pings of the machine. `token_of` finds it in a reply and in an ICMP error.
"""

from __future__ import annotations

import itertools
import secrets
import struct
from collections.abc import Callable, Iterator

from holdfast.balancer.probing.checks import Carrier, CheckFiles, CheckType, Conversation, ProbeVerdict
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec

_HEADER = struct.Struct("!BBHHH")
_MARK = b"holdfast"
_TOKEN = struct.Struct("!8sQ")
_REQUEST = {4: 8, 6: 128}
_REPLY = {4: 0, 6: 129}
_ERRORS = {(4, 3): "unreachable", (4, 11): "time exceeded", (6, 1): "unreachable", (6, 3): "time exceeded"}
IDENTIFIER = 0x4846


class EchoConversation:
    """One request and its reply; `feed` gets the ICMP message only, without the IP header."""

    def __init__(self, family: int, token: int) -> None:
        self._family = family
        self.token = token

    def start(self) -> bytes:
        return request(self._family, self.token)

    def feed(self, data: bytes) -> bytes | ProbeVerdict:
        if token_of(self._family, data) != self.token:
            return b""
        error = _ERRORS.get((self._family, data[0]))
        if error is None:
            return ProbeVerdict(True, ProbeCode.L3OK)
        return ProbeVerdict(False, ProbeCode.L3UNR, f"a router reported: {error} (type {data[0]}, code {data[1]})")

    def timed_out(self) -> ProbeVerdict:
        return ProbeVerdict(False, ProbeCode.L3TOUT)


def request(family: int, token: int) -> bytes:
    """Build an echo request. The kernel computes the checksum for IPv6 and ping sockets; raw IPv4 uses this one."""
    payload = _TOKEN.pack(_MARK, token)
    bare = _HEADER.pack(_REQUEST[family], 0, 0, IDENTIFIER, token & 0xFFFF)
    checked = _HEADER.pack(_REQUEST[family], 0, checksum(bare + payload), IDENTIFIER, token & 0xFFFF)
    return checked + payload


def checksum(message: bytes) -> int:
    """Internet checksum (RFC 1071) of a message of even length."""
    words: tuple[int, ...] = struct.unpack(f"!{len(message) // 2}H", message)
    total = sum(words)
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def token_of(family: int, message: bytes) -> int | None:
    """Token of the probe that this ICMP message answers; None when it answers none of ours."""
    if len(message) < _HEADER.size:
        return None
    if message[0] == _REPLY[family]:
        return _token(message[_HEADER.size :])
    if (family, message[0]) in _ERRORS:
        return _token_of_quoted(family, message[_HEADER.size :])
    return None


def _token_of_quoted(family: int, packet: bytes) -> int | None:
    """Token in the packet that an ICMP error quotes: IP header, ICMP header, and part of the payload."""
    return token_of_request(family, packet[_ip_header(family, packet) :])


def token_of_request(family: int, message: bytes) -> int | None:
    """Token in a request of ours that an error returns."""
    if len(message) < _HEADER.size or message[0] != _REQUEST[family]:
        return None
    return _token(message[_HEADER.size :])


def answers(family: int) -> Iterator[int]:
    """Types of all messages that can answer a request."""
    yield _REPLY[family]
    yield from (kind for of, kind in _ERRORS if of == family)


def _ip_header(family: int, packet: bytes) -> int:
    return (packet[0] & 0xF) * 4 if family == 4 and packet else 40


def without_ip_header(packet: bytes) -> bytes:
    """Remove the IP header, which a raw IPv4 socket delivers too."""
    return packet[_ip_header(4, packet) :]


def _token(payload: bytes) -> int | None:
    if len(payload) < _TOKEN.size:
        return None
    mark, token = _TOKEN.unpack_from(payload)
    return int(token) if mark == _MARK else None


_tokens = itertools.count(secrets.randbits(31) << 32)
"""Starts at random, because two probers on one machine receive each other's replies on raw sockets."""


def prepare(target: TargetSpec, _files: CheckFiles) -> Callable[[], Conversation]:
    family = 6 if ":" in target.address else 4
    return lambda: EchoConversation(family, next(_tokens))


CHECK = CheckType(Carrier.ECHO, prepare)
