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
from holdfast.balancer.probing.socket_transport import RECEIVE, SocketTransport


class UdpTransport(SocketTransport):
    kind = socket.SOCK_DGRAM

    def launch(self, probe: Probe) -> None:
        """Send the datagram. A probe that cannot start has ended when this returns."""
        probe.awaited = select.EPOLLIN
        if self._open(probe) is None:
            return
        probe.open = True
        try:
            self._answered(probe, probe.conversation.start())
        except OSError as error:
            self._fail(probe, error.errno or errno.EIO)

    def handle(self, fd: int, _events: int) -> None:
        """Read an answer, or the error that the kernel noted for this socket."""
        probe = self.probes[fd]
        assert probe.sock is not None
        try:
            data = probe.sock.recv(RECEIVE)
        except BlockingIOError:
            return
        except OSError as error:
            detail = os.strerror(error.errno or errno.EIO)
            self._end(probe, ProbeVerdict(False, ProbeCode.L4CON, detail))
            return
        self._answered(probe, probe.conversation.feed(data))

    def _answered(self, probe: Probe, answer: bytes | ProbeVerdict) -> None:
        if isinstance(answer, ProbeVerdict):
            self._end(probe, answer)
        elif answer and probe.sock is not None:
            probe.sock.send(answer)
