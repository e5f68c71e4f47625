"""A stream of pings from one network namespace, every one of them accounted for.

    with Pinger(namespace, "10.28.0.3") as pings:
        …
    assert pings.lost() == []

An echo request goes out every few milliseconds; the kernel of whoever has the address answers. The socket belongs to
the namespace, the thread that uses it does not have to.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import threading
import time
from types import TracebackType

from holdfast.netlink.netns import inside
from holdfast.testing.real.netns import Namespace

EVERY_S = 0.005
_GRACE_S = 2.0
_ECHO = {4: (socket.AF_INET, socket.IPPROTO_ICMP, 8, 0), 6: (socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, 129)}
_HEADER = struct.Struct("!BBHHH")
_NUMBER = struct.Struct("!Q")
_identifiers = itertools.count(1)


class Pinger:
    def __init__(self, namespace: Namespace, to: str) -> None:
        self._to = to
        family, protocol, self._request, self._reply = _ECHO[6 if ":" in to else 4]
        self._identifier = next(_identifiers) & 0xFFFF
        self._socket = inside(namespace.system_name, lambda: socket.socket(family, socket.SOCK_RAW, protocol))
        self._is_v4 = family == socket.AF_INET
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
        """The numbers of requests that nobody answered; complete once the block is over."""
        return sorted(set(range(self.sent)) - self._answered)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._send()
            self._receive(EVERY_S)
        deadline = time.monotonic() + _GRACE_S
        while self.lost() and time.monotonic() < deadline:
            self._receive(EVERY_S)

    def _send(self) -> None:
        payload = _NUMBER.pack(self.sent)
        self.sent += 1
        head = _HEADER.pack(self._request, 0, 0, self._identifier, self.sent & 0xFFFF)
        if self._is_v4:  # of IPv6 the kernel makes the checksum
            head = _HEADER.pack(self._request, 0, _checksum(head + payload), self._identifier, self.sent & 0xFFFF)
        with contextlib.suppress(OSError):  # not sent is not answered: it is counted
            self._socket.sendto(head + payload, (self._to, 0))

    def _receive(self, within: float) -> None:
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0 and select.select([self._socket], [], [], left)[0]:
            packet = self._socket.recv(2048)[20 if self._is_v4 else 0 :]
            kind, _, _, identifier, _ = _HEADER.unpack_from(packet)
            if (kind, identifier) == (self._reply, self._identifier):
                self._answered.add(_NUMBER.unpack_from(packet, _HEADER.size)[0])


def answers(namespace: Namespace, to: str) -> bool:
    """Whether one ping from there comes back."""
    with Pinger(namespace, to) as pings:
        deadline = time.monotonic() + 1
        while not pings.answered and time.monotonic() < deadline:
            time.sleep(EVERY_S)
    return pings.answered > 0


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF
