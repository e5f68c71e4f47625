"""ICMP transport: echo requests for all targets over one socket per address family and source.

It tries a ping socket first, which needs no privilege if the group is in net.ipv4.ping_group_range, then a raw socket,
which needs CAP_NET_RAW. With neither, the result is SOCKERR, which does not count against the backend.
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
from holdfast.balancer.probing.socket_transport import Ended, sending_code

_KIND = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_PACKET = 2_048
_BURST = 256
_BUFFER = 4 << 20

# Linux options without a name in the socket module.
_SO_RCVBUFFORCE = 33
_IP_RECVERR = 11
_IPV6_RECVERR = 25
_SOL_RAW, _ICMP_FILTER = 255, 1
_ICMP6_FILTER = 1


class IcmpSocket(NamedTuple):
    """One socket and the format of its packets."""

    sock: socket.socket
    family: int
    raw: bool


class IcmpTransport:
    def __init__(self, epoll: select.epoll, ended: Ended) -> None:
        self._epoll = epoll
        self._ended = ended
        self._sockets: dict[tuple[int, str], IcmpSocket] = {}
        self._fds: dict[int, IcmpSocket] = {}
        self._probes: dict[int, Probe] = {}

    def launch(self, probe: Probe) -> None:
        """Send the request. A probe that cannot start has ended when this returns."""
        target = probe.target
        echo = cast("EchoConversation", probe.conversation)
        try:
            icmp = self._socket(6 if target.family == socket.AF_INET6 else 4, target.source)
        except OSError as error:
            self._ended(probe, _not_opened(error))
            return
        if number := self._send(icmp, echo.start(), target.spec.address):
            self._ended(probe, ProbeVerdict(False, sending_code(number), os.strerror(number)))
            return
        probe.open = True
        self._probes[echo.token] = probe

    def handle(self, fd: int, events: int) -> bool:
        """Read replies, if this is one of our sockets."""
        icmp = self._fds.get(fd)
        if icmp is None:
            return False
        if events & select.EPOLLERR:
            self._read_errors(icmp)
        for _ in range(_BURST):
            try:
                packet = icmp.sock.recv(_PACKET)
            except BlockingIOError:
                break
            except OSError:
                continue  # a pending error of one probe: it was read above, or the probe times out
            self._on_message(icmp, without_ip_header(packet) if icmp.raw and icmp.family == 4 else packet)
        return True

    def abandon(self, probe: Probe) -> None:
        """Drop the probe; a reply that still comes is ignored."""
        self._probes.pop(cast("EchoConversation", probe.conversation).token, None)

    def close(self) -> None:
        """Close all sockets; also on a change of the network namespace, because a socket stays in its namespace."""
        for icmp in self._sockets.values():
            icmp.sock.close()
        self._sockets.clear()
        self._fds.clear()

    def _on_message(self, icmp: IcmpSocket, message: bytes) -> None:
        token = token_of(icmp.family, message)
        probe = None if token is None else self._probes.get(token)
        if probe is None:
            return
        answer = probe.conversation.feed(message)
        if isinstance(answer, ProbeVerdict):
            self.abandon(probe)
            self._ended(probe, answer)

    def _send(self, icmp: IcmpSocket, request: bytes, address: str) -> int:
        """Send a request. Returns the number of the error, 0 without one. The first may be about a request to another
        target, of which the socket has just learned."""
        for _ in range(2):
            try:
                icmp.sock.sendto(request, (address, 0))
            except OSError as error:
                number = error.errno or errno.EIO
                self._read_errors(icmp)
            else:
                return 0
        return number

    def _read_errors(self, icmp: IcmpSocket) -> None:
        """Read the error queue: a ping socket gets ICMP errors there, with the request that they are about."""
        for _ in range(_BURST):
            try:
                quoted, *_ = icmp.sock.recvmsg(_PACKET, 512, socket.MSG_ERRQUEUE)
            except OSError:
                return
            token = token_of_request(icmp.family, quoted)
            probe = None if token is None else self._probes.get(token)
            if probe is not None:
                self.abandon(probe)
                self._ended(probe, ProbeVerdict(False, ProbeCode.L3UNR, "a router reported: unreachable"))

    def _socket(self, family: int, source: str) -> IcmpSocket:
        icmp = self._sockets.get((family, source))
        if icmp is None:
            icmp = _open(family, source)
            self._sockets[family, source] = icmp
            self._fds[icmp.sock.fileno()] = icmp
            self._epoll.register(icmp.sock.fileno(), select.EPOLLIN)
        return icmp


def _open(family: int, source: str) -> IcmpSocket:
    domain, protocol = (
        (socket.AF_INET6, socket.IPPROTO_ICMPV6) if family == 6 else (socket.AF_INET, socket.IPPROTO_ICMP)
    )
    try:
        icmp = IcmpSocket(socket.socket(domain, socket.SOCK_DGRAM | _KIND, protocol), family, raw=False)
        _receive_errors(icmp)
    except PermissionError:
        icmp = IcmpSocket(socket.socket(domain, socket.SOCK_RAW | _KIND, protocol), family, raw=True)
        _receive_only_answers(icmp)
    try:
        with contextlib.suppress(PermissionError):
            icmp.sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        if source:
            icmp.sock.bind((source, 0))
    except OSError:
        icmp.sock.close()
        raise
    return icmp


def _receive_errors(icmp: IcmpSocket) -> None:
    if icmp.family == 4:
        icmp.sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
    else:
        icmp.sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)


def _receive_only_answers(icmp: IcmpSocket) -> None:
    """Filter a raw socket, which would get every ICMP packet of the machine. A bit that is set blocks a type."""
    blocked = ~sum(1 << kind for kind in answers(icmp.family))
    if icmp.family == 4:
        icmp.sock.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("I", blocked & 0xFFFF_FFFF))
    else:
        words = [blocked >> 32 * word & 0xFFFF_FFFF for word in range(8)]
        icmp.sock.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("8I", *words))


def _not_opened(error: OSError) -> ProbeVerdict:
    if isinstance(error, PermissionError):
        return ProbeVerdict(
            False,
            ProbeCode.SOCKERR,
            "this process may not send ICMP: give it CAP_NET_RAW, or add its group to net.ipv4.ping_group_range",
        )
    return ProbeVerdict(False, ProbeCode.SOCKERR, error.strerror or str(error))
