"""TCP transport: each probe opens a non-blocking TCP connection, and resets it at the end.

A reset leaves no TIME_WAIT behind, so that thousands of probes a second do not use up ports. The last acknowledgement
of the handshake is delayed until there is data to send with it: a tcp check resets the connection before that, so the
backend's kernel has answered, and its application never sees the connection.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from pathlib import Path

from holdfast.balancer.probing.checks import ProbeVerdict
from holdfast.balancer.probing.messages import ProbeCode
from holdfast.balancer.probing.probe import Probe
from holdfast.balancer.probing.socket_transport import RECEIVE, Ended, SocketTransport

_RESET = struct.pack("ii", 1, 0)
_LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class TcpTransport(SocketTransport):
    kind = socket.SOCK_STREAM
    options = (
        (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0),
        (socket.SOL_SOCKET, socket.SO_LINGER, _RESET),
    )

    def __init__(self, epoll: select.epoll, ended: Ended) -> None:
        super().__init__(epoll, ended)
        self._local_ports = range(65_536)

    def read_local_ports(self) -> None:
        """Learn which ports the kernel chooses for our end; each network namespace has its own range."""
        try:
            low, high = map(int, _LOCAL_PORTS.read_text().split())
        except (OSError, ValueError):  # not mounted: any port may be one
            low, high = 0, 65_535
        self._local_ports = range(low, high + 1)

    def launch(self, probe: Probe) -> None:
        """Open the connection. A probe that cannot start has ended when this returns."""
        self._open(probe)

    def handle(self, fd: int, events: int) -> None:
        """Handle an event of one of our connections."""
        probe = self.probes[fd]
        assert probe.sock is not None
        if not probe.open:
            self._opened(probe, probe.sock, events)
            return
        if probe.unsent and events & select.EPOLLOUT:
            self._send(probe, probe.sock, b"")
        if events & ~select.EPOLLOUT and probe.sock is not None:
            self._receive(probe, probe.sock)

    def _opened(self, probe: Probe, sock: socket.SocketType, events: int) -> None:
        # Runs for every probe: no call into the kernel that cannot find anything.
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if events & select.EPOLLERR else 0
        if number:
            self._end(probe, ProbeVerdict(False, ProbeCode.L4CON, os.strerror(number)))
        elif probe.target.endpoint[1] in self._local_ports and sock.getsockname() == sock.getpeername():
            # Nothing listens there, and the kernel chose the same port for our end: the socket connected to itself.
            self._end(probe, ProbeVerdict(False, ProbeCode.L4CON, os.strerror(errno.ECONNREFUSED)))
        else:
            probe.open = True
            self._answered(probe, sock, probe.conversation.start())

    def _receive(self, probe: Probe, sock: socket.SocketType) -> None:
        try:
            data = sock.recv(RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # a reset counts as closed
        self._answered(probe, sock, probe.conversation.feed(data))

    def _answered(self, probe: Probe, sock: socket.SocketType, answer: bytes | ProbeVerdict) -> None:
        if isinstance(answer, ProbeVerdict):
            self._end(probe, answer)
        else:
            self._send(probe, sock, answer)

    def _send(self, probe: Probe, sock: socket.SocketType, more: bytes) -> None:
        """Send what the connection takes now, and wait for the answer, or until it takes more."""
        probe.unsent += more
        if probe.unsent:
            try:
                probe.unsent = probe.unsent[sock.send(probe.unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                probe.unsent = b""  # the backend has closed; its last answer is still to be read
        awaited = select.EPOLLIN | (select.EPOLLOUT if probe.unsent else 0)
        if awaited != probe.awaited:
            self._epoll.modify(sock.fileno(), awaited)
            probe.awaited = awaited
