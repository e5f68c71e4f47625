"""One server of a lab or of a chaos test: everything that `holdfast server` runs, and the fenced writer.

python -m holdfast.lab.fleet.server server.name=s1 store.endpoints=http://127.0.0.1:2379 paths.state=…
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from holdfast.lab.fleet import daemon
from holdfast.lab.fleet.fenced_writer import WRITER
from holdfast.runtime.daemon.worker import Spec
from holdfast.server.workers import WORKERS, cells

ROLE = "server"


def command(settings: Sequence[str]) -> Sequence[str]:
    """Return the command line that starts such a server."""
    return daemon.command("holdfast.lab.fleet.server", settings)


def run_server(arguments: Sequence[str], workers: Sequence[Spec] = (*WORKERS, WRITER)) -> int:
    """Run a server with these workers until it is stopped, and return the exit code."""
    settings = daemon.bind_to_parent(arguments)
    return 1 if settings is None else daemon.run_daemon(ROLE, settings, workers, cells=cells(workers))


if __name__ == "__main__":
    sys.exit(run_server(sys.argv[1:]))
