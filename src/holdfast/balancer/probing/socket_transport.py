"""Sockets of probes: how one is opened and connected, and what an error on the way says.

An error before anything was sent (no descriptor, no such source address) is ours, not the backend's: SOCKERR. Without a
route it may be either: NOROUTE. A route of type unreachable, prohibit or blackhole is none.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from typing import ClassVar

from holdfast.balancer.probing.checks import ProbeVerdict
from holdfast.balancer.probing.messages import ProbeCode
from holdfast.balancer.probing.probe import Probe

Ended = Callable[[Probe, ProbeVerdict], None]

RECEIVE = 64 << 10
NO_ROUTE = {errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL}
"""Errors at once, of a machine that has no route to an address (B27): the last three are routes of type unreachable,
prohibit and blackhole. An unreachable host that the network reports later is the backend's."""
_BIND_ADDRESS_NO_PORT = 24
_BACKEND_ERRORS = {errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTDOWN, errno.ETIMEDOUT}


class SocketTransport:
    """Probes with a socket each. `kind` is the type of the sockets, `options` are set before they are connected."""

    kind: ClassVar[socket.SocketKind]
    options: ClassVar[tuple[tuple[int, int, int | bytes], ...]] = ()

    def __init__(self, epoll: select.epoll, ended: Ended) -> None:
        self._epoll = epoll
        self._ended = ended
        self._kind = self.kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self.probes: dict[int, Probe] = {}

    def abandon(self, probe: Probe) -> None:
        """Close the socket without a verdict."""
        sock, probe.sock = probe.sock, None
        if sock is not None:
            self.probes.pop(sock.fileno(), None)
            sock.close()

    def _open(self, probe: Probe) -> socket.SocketType | None:
        """Open and connect the socket of a probe. A probe that cannot start has ended when this returns None."""
        target = probe.target
        try:
            probe.sock = sock = socket.SocketType(target.family, self._kind)
            if target.source:
                sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
                sock.bind((target.source, 0))
            for option in self.options:
                sock.setsockopt(*option)
            number = sock.connect_ex(target.endpoint)
        except OSError as error:
            self._end(probe, ProbeVerdict(False, ProbeCode.SOCKERR, error.strerror or str(error)))
            return None
        if number not in (0, errno.EINPROGRESS):
            self._fail(probe, number)
            return None
        self.probes[sock.fileno()] = probe
        self._epoll.register(sock.fileno(), probe.awaited)
        return sock

    def _fail(self, probe: Probe, number: int) -> None:
        """End a probe that could not be sent."""
        self._end(probe, ProbeVerdict(False, sending_code(number), os.strerror(number)))

    def _end(self, probe: Probe, verdict: ProbeVerdict) -> None:
        self.abandon(probe)
        self._ended(probe, verdict)


def sending_code(number: int) -> ProbeCode:
    """Code of a probe that could not be sent."""
    if number in NO_ROUTE:  # protection: B27
        return ProbeCode.NOROUTE
    return ProbeCode.L4CON if number in _BACKEND_ERRORS else ProbeCode.SOCKERR
