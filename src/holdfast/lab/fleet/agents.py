"""The lab's agents: all that `holdfast agent` runs, on a dataplane that is a file.

    python -m holdfast.lab.fleet.agents agent.host=r1-01 store.endpoints=… paths.state=…

One process beside them starts each again when it is gone, as a service manager would. The files that stand for the
hosts' kernels lie outside the agents' own folders: a kernel does not live in the agent's runtime folder either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from holdfast.lab.fleet import server as member
from holdfast.lab.fleet.server import DIE_WITH, run_member, tied
from holdfast.model.base.time import Duration
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import report
from holdfast.runtime.daemon.worker import Spec, Worker

log = structlog.get_logger(__name__)

ROLE = "agent"
AGENTS = Spec("agents", "holdfast.lab.fleet.fleet:agents")
TIMINGS = ("agent.report_interval=2s", "agent.report_ttl=60s", "agent.silent_after=10s")
"""Shorter than the defaults, so that a scene is over before one gets bored."""
_AGAIN = Duration(milliseconds=500)
_PATIENCE = Duration(seconds=60)


def kernel_file(state: Path, host: str) -> Path:
    """What stands for that host's kernel."""
    return state / "kernels" / f"{host}.json"


def held_file(state: Path, host: str) -> Path:
    """While this exists, that host's agent is not started again: a scene holds it down."""
    return state / "kernels" / f"{host}.down"


async def is_up(worker: Worker, host: str) -> None:
    """Returns when the workers of that agent have shown themselves. Agents are started one after another: all at once
    would take a small machine for so long that their supervisors give them up."""
    most = worker.clock.now() + _PATIENCE
    while worker.clock.now() < most and not _shows_itself(worker.paths.runtime / host):
        if await worker.stopped(_AGAIN):
            return


def _shows_itself(runtime: Path) -> bool:
    try:
        board = Board.open(runtime / f"{ROLE}.board", read_only=True)
    except BoardError:
        return False
    return all(one.pid is not None for one in report(board, ROLE, "", SystemClock().now()).workers)


async def tend(worker: Worker, host: str, settings: Sequence[str]) -> None:
    """Keeps one agent running beside this process until told to stop."""
    state = worker.paths.state
    own = [f"agent.host={host}", *_kernel(state, host), *settings, *TIMINGS]
    command = member.command([f"{DIE_WITH}{os.getpid()}", *own], module="holdfast.lab.fleet.agents")
    while not worker.stopping.is_set():
        if not held_file(state, host).exists():
            await _run(worker, command)
        await worker.stopped(_AGAIN)


def _kernel(state: Path, host: str) -> Sequence[str]:
    """What that host's agent programs: the kernel of its namespace, or a file."""
    from holdfast.lab.fleet import netns  # large, and none of an agent's business, which reads this module too

    namespace = netns.namespaces(state).get(host)
    if namespace is None:
        return ["agent.dataplane.kind=memory", f"agent.dataplane.file={kernel_file(state, host)}"]
    return ["agent.dataplane.kind=linux", f"agent.dataplane.netns={namespace}"]


async def _run(worker: Worker, command: Sequence[str]) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    ended, stopping = asyncio.create_task(process.wait()), asyncio.create_task(worker.stopping.wait())
    try:
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await ended


def main(arguments: Sequence[str]) -> int:
    from holdfast.agent.worker import (
        WORKERS,  # only an agent needs them, and every process of the lab reads this module
    )

    settings = tied(arguments)
    return 1 if settings is None else run_member(settings, WORKERS, role=ROLE, board=())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
