"""The host agent: keeps this host's kernel in step with the fleet, and keeps a journal of everything it programmed."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.config.root import Config

ROLE = "agent"
PEERS_WORKER = "peers"
"""Worker that programs the kernel; the reporter asks it for its report."""


def host_name(config: Config) -> str:
    return config.agent.host or socket.gethostname()
