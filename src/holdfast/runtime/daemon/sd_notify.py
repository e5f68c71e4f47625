"""sd_notify: reports readiness, watchdog keep-alives, reloads and stops to systemd; does nothing without it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

import structlog

log = structlog.get_logger(__name__)


class ServiceManager:
    """Client of $NOTIFY_SOCKET, if it is set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._socket: socket.socket | None = None
        self._reachable = True
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)

    @classmethod
    def of_this_process(cls) -> ServiceManager:
        return cls(os.environ)

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto(message.encode(), address)
            self._reachable = True
        except OSError as error:
            if self._reachable:
                log.warning("sd_notify failed; the systemd watchdog may fire", error=str(error))
            self._reachable = False
