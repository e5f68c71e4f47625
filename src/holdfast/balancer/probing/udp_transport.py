"""UDP transport: each probe sends one datagram from a connected socket of its own, and waits for one answer.

A connected socket gets only answers from the backend, and learns from the kernel that nothing listens there.
"""

from __future__ import annotations

import errno
import os
import select
import socket

from holdfast.balancer.probing.checks import ProbeVerdict
from holdfast.balancer.probing.messages import ProbeCode
from holdfast.balancer.probing.probe import Probe
from holdfast.balancer.probing.tcp_transport import Ended, opening_code

_SOCKET_TYPE = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_RECEIVE = 64 << 10


class UdpTransport:
    def __init__(self, epoll: select.epoll, ended: Ended) -> None:
        self._epoll = epoll
        self._ended = ended
        self.probes: dict[int, Probe] = {}

    def launch(self, probe: Probe) -> None:
        """Send the datagram. A probe that cannot start has ended when this returns."""
        target = probe.target
        try:
            probe.sock = sock = socket.SocketType(target.family, _SOCKET_TYPE)
            if target.source:
                sock.bind((target.source, 0))
            sock.connect(target.endpoint)
            probe.open = True
            self.probes[sock.fileno()] = probe
            self._epoll.register(sock.fileno(), select.EPOLLIN)
            self._answered(probe, probe.conversation.start())
        except OSError as error:
            number = error.errno or errno.EIO
            self._end(probe, ProbeVerdict(False, opening_code(number), os.strerror(number)))

    def handle(self, fd: int, _events: int) -> None:
        """Read an answer, or the error that the kernel noted for this socket."""
        probe = self.probes[fd]
        assert probe.sock is not None
        try:
            data = probe.sock.recv(_RECEIVE)
        except BlockingIOError:
            return
        except OSError as error:
            detail = os.strerror(error.errno or errno.EIO)
            self._end(probe, ProbeVerdict(False, ProbeCode.L4CON, detail))
            return
        self._answered(probe, probe.conversation.feed(data))

    def abandon(self, probe: Probe) -> None:
        """Close the socket without a verdict."""
        sock, probe.sock = probe.sock, None
        if sock is not None:
            self.probes.pop(sock.fileno(), None)
            sock.close()

    def _answered(self, probe: Probe, answer: bytes | ProbeVerdict) -> None:
        if isinstance(answer, ProbeVerdict):
            self._end(probe, answer)
        elif answer and probe.sock is not None:
            probe.sock.send(answer)

    def _end(self, probe: Probe, verdict: ProbeVerdict) -> None:
        self.abandon(probe)
        self._ended(probe, verdict)
