"""Agents of the lab: everything that `holdfast agent` runs, on a dataplane that is a file.

    python -m holdfast.lab.fleet.agents agent.host=r1-01 store.endpoints=… paths.state=…

The worker `agents` restarts each agent when it exits, as a service manager would. The files that stand for the hosts'
kernels are outside the agents' own folders, because a kernel survives its agent's state folder too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.lab.fleet import daemon, layout
from holdfast.model.base.time import Duration
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import report
from holdfast.runtime.daemon.worker import Spec, Worker

ROLE = "agent"
AGENTS = Spec("agents", "holdfast.lab.fleet.fleet:agents")
TIMINGS = ("agent.report_interval=2s", "agent.report_ttl=60s", "agent.silent_after=10s")
"""Shorter than the defaults, so that a scene takes seconds."""
_RETRY = Duration(milliseconds=500)
_START_TIMEOUT = Duration(seconds=60)


async def wait_until_up(worker: Worker, host: str) -> None:
    """Return when all workers of that agent run, or after a minute.

    Agents start one after another: started together, they would load a small machine for so long that their
    supervisors would restart workers that have not reported in time.
    """
    deadline = worker.clock.now() + _START_TIMEOUT
    while worker.clock.now() < deadline and not _is_up(worker.paths.runtime / host):
        if await worker.stopped(_RETRY):
            return


def _is_up(runtime: Path) -> bool:
    try:
        board = Board.open(runtime / f"{ROLE}.board", read_only=True)
    except BoardError:
        return False
    return all(one.pid is not None for one in report(board, ROLE, "", SystemClock().now()).workers)


async def keep_running(worker: Worker, host: str, settings: Sequence[str]) -> None:
    """Run one agent, and restart it whenever it exits, until the worker is told to stop."""
    state = worker.paths.state
    own = [f"agent.host={host}", *_dataplane(state, host), *settings, *TIMINGS]
    command = daemon.command("holdfast.lab.fleet.agents", [f"{daemon.DIE_WITH}{os.getpid()}", *own])
    while not worker.stopping.is_set():
        if not layout.down_file(state, host).exists():
            await daemon.run_child(worker, command)
        await worker.stopped(_RETRY)


def _dataplane(state: Path, host: str) -> Sequence[str]:
    """Return the settings for that host's dataplane: the kernel of its namespace, or a file."""
    namespace = layout.namespaces(state).get(host)
    if namespace is None:
        return ["agent.dataplane.kind=memory", f"agent.dataplane.file={layout.kernel_file(state, host)}"]
    return ["agent.dataplane.kind=linux", f"agent.dataplane.netns={namespace}"]


def main(arguments: Sequence[str]) -> int:
    from holdfast.agent.worker import WORKERS  # large, and every process of the lab imports this module

    settings = daemon.bind_to_parent(arguments)
    return 1 if settings is None else daemon.run_daemon(ROLE, settings, WORKERS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
