"""One agent per network namespace: two would take each other's objects for leftovers.

The lock is a socket address of the kernel that belongs to the namespace and goes with the process, however it ends.

The one right that the agent needs: CAP_NET_ADMIN, in its own network namespace.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from holdfast.reconcile import Away

_ADDRESS = "\0holdfast/agent"


class NamespaceLock:
    """Held from its making to `close`. Raises `Away` while another agent holds it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(_ADDRESS)
        except OSError as error:
            self._socket.close()
            if error.errno != errno.EADDRINUSE:
                raise
            raise Away("the kernel", "another agent runs in this network namespace; stop one of them") from error

    def close(self) -> None:
        self._socket.close()


_NET_ADMIN = 12
_STATUS = Path("/proc/self/status")


def missing_capability() -> str | None:
    """None, or one sentence for whoever started us without it."""
    effective = int(_STATUS.read_text().partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    if effective >> _NET_ADMIN & 1:
        return None
    return (
        "the agent may not change this host's routes: start it as root, or give its systemd unit "
        "AmbientCapabilities=CAP_NET_ADMIN"
    )
