"""Streams: each probe gets a fresh, non-blocking TCP connection, and resets it when it is done.

A reset leaves no TIME_WAIT behind, so thousands of probes a second do not use up ports. The last acknowledgement of
the handshake is held back until there is something to send with it: a tcp check is reset before that, so the backend's
kernel has answered, and its application is not bothered with a connection that nobody wants. An error that the kernel
gives before anything was sent (no route, no descriptor, no such source address) is ours, not the backend's: SOCKERR.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Callable

from holdfast.balancer.probing.checks import ProbeVerdict
from holdfast.balancer.probing.messages import ProbeCode
from holdfast.balancer.probing.probe import Probe

Ended = Callable[[Probe, ProbeVerdict], None]

_RESET = struct.pack("ii", 1, 0)
_RECEIVE = 64 << 10
_FRESH = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_BIND_ADDRESS_NO_PORT = 24
_BACKEND_SAYS_NO = {errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT}


class TcpTransport:
    def __init__(self, epoll: select.epoll, ended: Ended) -> None:
        self._epoll = epoll
        self._ended = ended
        self.flights: dict[int, Probe] = {}

    def launch(self, flight: Probe) -> None:
        """Opens the connection. A probe that cannot even begin has ended when this returns."""
        lane = flight.lane
        try:
            flight.sock = sock = socket.SocketType(lane.family, _FRESH)
            if lane.source:
                sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
                sock.bind((lane.source, 0))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            number = sock.connect_ex(lane.endpoint)
        except OSError as error:
            number = error.errno or errno.EIO
        if number not in (0, errno.EINPROGRESS):
            code = ProbeCode.L4CON if number in _BACKEND_SAYS_NO else ProbeCode.SOCKERR
            self._end(flight, ProbeVerdict(False, code, os.strerror(number)))
            return
        fd = sock.fileno()
        self.flights[fd] = flight
        self._epoll.register(fd, flight.awaited)

    def handle(self, fd: int, events: int) -> None:
        """Something happened on one of our connections."""
        flight = self.flights[fd]
        assert flight.sock is not None
        if not flight.open:
            self._opened(flight, flight.sock)
            return
        if flight.unsent and events & select.EPOLLOUT:
            self._say(flight, flight.sock, b"")
        if events & ~select.EPOLLOUT and flight.sock is not None:
            self._hear(flight, flight.sock)

    def abandon(self, flight: Probe) -> None:
        """Closes the connection without a verdict."""
        sock, flight.sock = flight.sock, None
        if sock is not None:
            self.flights.pop(sock.fileno(), None)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()

    def _opened(self, flight: Probe, sock: socket.SocketType) -> None:
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._end(flight, ProbeVerdict(False, ProbeCode.L4CON, os.strerror(number)))
        elif sock.getsockname()[1] == flight.lane.endpoint[1] and sock.getsockname() == sock.getpeername():
            # Nobody listens, and the kernel chose the backend's own port for our end: we reached ourselves.
            self._end(flight, ProbeVerdict(False, ProbeCode.L4CON, os.strerror(errno.ECONNREFUSED)))
        else:
            flight.open = True
            self._answered(flight, sock, flight.conversation.start())

    def _hear(self, flight: Probe, sock: socket.SocketType) -> None:
        try:
            data = sock.recv(_RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # reset: closed, only ruder
        self._answered(flight, sock, flight.conversation.feed(data))

    def _answered(self, flight: Probe, sock: socket.SocketType, answer: bytes | ProbeVerdict) -> None:
        if isinstance(answer, ProbeVerdict):
            self._end(flight, answer)
        else:
            self._say(flight, sock, answer)

    def _say(self, flight: Probe, sock: socket.SocketType, more: bytes) -> None:
        """Sends what the connection takes now, and waits for the answer, or for room."""
        flight.unsent += more
        if flight.unsent:
            try:
                flight.unsent = flight.unsent[sock.send(flight.unsent) :]
            except BlockingIOError:
                pass
            except OSError:
                flight.unsent = b""  # the backend has closed; what it said before that is still to be read
        awaited = select.EPOLLIN | (select.EPOLLOUT if flight.unsent else 0)
        if awaited != flight.awaited:
            self._epoll.modify(sock.fileno(), awaited)
            flight.awaited = awaited

    def _end(self, flight: Probe, verdict: ProbeVerdict) -> None:
        self.abandon(flight)
        self._ended(flight, verdict)
