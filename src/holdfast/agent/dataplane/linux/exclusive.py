"""Preconditions of an agent on Linux: it is the only one in its network namespace, and has CAP_NET_ADMIN there.

Two agents would delete each other's objects as stale. The lock is an abstract socket address: it belongs to the
namespace and is released with the process, however that ends.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from holdfast.reconcile import Away

_ADDRESS = "\0holdfast/agent"


class NamespaceLock:
    """Held from its creation to `close`. Raises `Away` while another agent holds it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(_ADDRESS)
        except OSError as error:
            self._socket.close()
            if error.errno != errno.EADDRINUSE:
                raise
            raise Away("the kernel", "another agent runs in this network namespace; stop one of the two") from error

    def close(self) -> None:
        self._socket.close()


_NET_ADMIN = 12
_STATUS = Path("/proc/self/status")


def missing_capability() -> str | None:
    """Return None, or one sentence about the missing capability."""
    effective = int(_STATUS.read_text().partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    if effective >> _NET_ADMIN & 1:
        return None
    return (
        "the agent may not change this host's routes: start it as root, or give its systemd unit "
        "AmbientCapabilities=CAP_NET_ADMIN"
    )
