"""Ping continuously from one network namespace and account for every request.

    with Pinger(namespace, "10.28.0.3") as pings:
        …
    assert pings.lost() == []

An echo request goes out every few milliseconds; the kernel that has the address answers. The socket belongs to the
namespace, the thread that uses it does not have to.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
import time
from types import TracebackType

from holdfast.balancer.probing.checks.icmp import request, token_of, without_ip_header
from holdfast.netlink.netns import inside
from holdfast.testing.real.netns import Namespace

INTERVAL_S = 0.005
_GRACE_S = 2.0
_SOCKET = {4: (socket.AF_INET, socket.IPPROTO_ICMP), 6: (socket.AF_INET6, socket.IPPROTO_ICMPV6)}
_REPLY = {4: 0, 6: 129}
_pingers = itertools.count(1)


class Pinger:
    def __init__(self, namespace: Namespace, to: str) -> None:
        self._to = to
        self._family = 6 if ":" in to else 4
        self._first = next(_pingers) << 32  # raw sockets see the replies to every pinger of the namespace
        family, protocol = _SOCKET[self._family]
        self._socket = inside(namespace.system_name, lambda: socket.socket(family, socket.SOCK_RAW, protocol))
        self._socket.setblocking(False)
        self.sent = 0
        self._answered: set[int] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Pinger:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._socket.close()

    @property
    def answered(self) -> int:
        return len(self._answered)

    def lost(self) -> list[int]:
        """Return the numbers of the unanswered requests; complete once the block is over."""
        return sorted(set(range(self.sent)) - self._answered)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._send()
            self._receive(INTERVAL_S)
        deadline = time.monotonic() + _GRACE_S
        while self.lost() and time.monotonic() < deadline:
            self._receive(INTERVAL_S)

    def _send(self) -> None:
        message = request(self._family, self._first + self.sent)
        self.sent += 1
        with contextlib.suppress(OSError):  # a request that could not be sent counts as lost
            self._socket.sendto(message, (self._to, 0))

    def _receive(self, within: float) -> None:
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0 and select.select([self._socket], [], [], left)[0]:
            packet = self._socket.recv(2048)
            message = without_ip_header(packet) if self._family == 4 else packet
            token = token_of(self._family, message)
            if token is not None and token >> 32 == self._first >> 32 and message[0] == _REPLY[self._family]:
                self._answered.add(token - self._first)


def answers(namespace: Namespace, to: str) -> bool:
    """Return True if one ping from the namespace is answered within a second."""
    with Pinger(namespace, to) as pings:
        deadline = time.monotonic() + 1
        while not pings.answered and time.monotonic() < deadline:
            time.sleep(INTERVAL_S)
    return pings.answered > 0
