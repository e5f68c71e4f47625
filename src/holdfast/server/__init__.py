"""Control plane: one leader among any number of servers, and the workers whose work only the leader's server does.

`workers` lists the worker processes. `election` decides which server leads, and `election.leadership` tells the other
workers whether they may write. `leader_work` is the frame that `syncer` and `status` run in.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.runtime.daemon.worker import Worker


def server_name(worker: Worker) -> str:
    """Name of this server in the fleet: `server.name`, or else the host name."""
    return worker.config.server.name or socket.gethostname()
