"""Echoes: ICMP for all targets over one socket per address family and source.

A ping socket is tried first: it needs no privilege where the group is in net.ipv4.ping_group_range. Else a raw socket,
which needs CAP_NET_RAW. With neither, the probe says so (SOCKERR) and the backend is not to blame.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from typing import NamedTuple, cast

from holdfast.balancer.probing.checks import ProbeVerdict
from holdfast.balancer.probing.checks.icmp import (
    EchoConversation,
    answers,
    token_of,
    token_of_request,
    without_ip_header,
)
from holdfast.balancer.probing.messages import ProbeCode
from holdfast.balancer.probing.probe import Probe
from holdfast.balancer.probing.tcp import Ended

_KIND = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_PACKET = 2_048
_BURST = 256
_BUFFER = 4 << 20
_UNREACHABLE = {errno.EHOSTUNREACH, errno.EHOSTDOWN}

# Options of Linux that the socket module has no names for.
_SO_RCVBUFFORCE = 33
_IP_RECVERR = 11
_IPV6_RECVERR = 25
_SOL_RAW, _ICMP_FILTER = 255, 1
_ICMP6_FILTER = 1


class IcmpSocket(NamedTuple):
    """One socket, and how its packets look."""

    sock: socket.socket
    family: int
    raw: bool


class IcmpTransport:
    def __init__(self, epoll: select.epoll, ended: Ended) -> None:
        self._epoll = epoll
        self._ended = ended
        self._ways: dict[tuple[int, str], IcmpSocket] = {}
        self._fds: dict[int, IcmpSocket] = {}
        self._flights: dict[int, Probe] = {}

    def launch(self, flight: Probe) -> None:
        """Sends the request. A probe that cannot even begin has ended when this returns."""
        lane = flight.lane
        echo = cast("EchoConversation", flight.conversation)
        try:
            way = self._way(6 if lane.family == socket.AF_INET6 else 4, lane.source)
            way.sock.sendto(echo.start(), (lane.target.address, 0))
        except OSError as error:
            self._ended(flight, _not_sent(error))
            return
        flight.open = True
        self._flights[echo.token] = flight

    def handle(self, fd: int, events: int) -> bool:
        """Reads replies, if this is one of our sockets."""
        way = self._fds.get(fd)
        if way is None:
            return False
        if events & select.EPOLLERR:
            self._read_errors(way)
        for _ in range(_BURST):
            try:
                packet = way.sock.recv(_PACKET)
            except BlockingIOError:
                break
            except OSError:
                continue  # a pending error of one probe; it has been read above, or its probe times out
            self._heard(way, without_ip_header(packet) if way.raw and way.family == 4 else packet)
        return True

    def abandon(self, flight: Probe) -> None:
        """Forgets the probe; its reply, if it comes, is nobody's."""
        self._flights.pop(cast("EchoConversation", flight.conversation).token, None)

    def close(self) -> None:
        """Also when the network namespace changes: a socket stays in the one it was made in."""
        for way in self._ways.values():
            way.sock.close()
        self._ways.clear()
        self._fds.clear()

    def _heard(self, way: IcmpSocket, message: bytes) -> None:
        token = token_of(way.family, message)
        flight = None if token is None else self._flights.get(token)
        if flight is None:
            return
        answer = flight.conversation.feed(message)
        if isinstance(answer, ProbeVerdict):
            self.abandon(flight)
            self._ended(flight, answer)

    def _read_errors(self, way: IcmpSocket) -> None:
        """A ping socket gets a router's refusal on its error queue, with the request that it is about."""
        for _ in range(_BURST):
            try:
                quoted, *_ = way.sock.recvmsg(_PACKET, 512, socket.MSG_ERRQUEUE)
            except OSError:
                return
            token = token_of_request(way.family, quoted)
            flight = None if token is None else self._flights.get(token)
            if flight is not None:
                self.abandon(flight)
                self._ended(flight, ProbeVerdict(False, ProbeCode.L3UNR, "a router says: unreachable"))

    def _way(self, family: int, source: str) -> IcmpSocket:
        way = self._ways.get((family, source))
        if way is None:
            way = _open(family, source)
            self._ways[family, source] = way
            self._fds[way.sock.fileno()] = way
            self._epoll.register(way.sock.fileno(), select.EPOLLIN)
        return way


def _open(family: int, source: str) -> IcmpSocket:
    domain, protocol = (
        (socket.AF_INET6, socket.IPPROTO_ICMPV6) if family == 6 else (socket.AF_INET, socket.IPPROTO_ICMP)
    )
    try:
        way = IcmpSocket(socket.socket(domain, socket.SOCK_DGRAM | _KIND, protocol), family, raw=False)
        _hear_errors(way)
    except PermissionError:
        way = IcmpSocket(socket.socket(domain, socket.SOCK_RAW | _KIND, protocol), family, raw=True)
        _hear_only_answers(way)
    try:
        with contextlib.suppress(PermissionError):
            way.sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        if source:
            way.sock.bind((source, 0))
    except OSError:
        way.sock.close()
        raise
    return way


def _hear_errors(way: IcmpSocket) -> None:
    if way.family == 4:
        way.sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
    else:
        way.sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)


def _hear_only_answers(way: IcmpSocket) -> None:
    """A raw socket would get every ICMP packet of the machine. In both filters a bit that is set blocks a type."""
    blocked = ~sum(1 << kind for kind in answers(way.family))
    if way.family == 4:
        way.sock.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("I", blocked & 0xFFFF_FFFF))
    else:
        words = [blocked >> 32 * word & 0xFFFF_FFFF for word in range(8)]
        way.sock.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("8I", *words))


def _not_sent(error: OSError) -> ProbeVerdict:
    if isinstance(error, PermissionError):
        return ProbeVerdict(
            False,
            ProbeCode.SOCKERR,
            "this process may not send ICMP: give it CAP_NET_RAW, or add its group to net.ipv4.ping_group_range",
        )
    number = error.errno or errno.EIO
    return ProbeVerdict(False, ProbeCode.L3UNR if number in _UNREACHABLE else ProbeCode.SOCKERR, os.strerror(number))
