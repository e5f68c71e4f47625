"""A server with leader work whose database can be taken away, and with an elector that hands over early.

    python -m tests.chaos.server_without_database server.name=s1 …

A file `database-away` in the state folder takes it away.
"""

from __future__ import annotations

import sys

from holdfast.lab.fleet.fenced_writer import WRITER
from holdfast.lab.fleet.server import run_server
from holdfast.model.base.time import Duration
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.server.election.worker import ElectorJob

PATIENCE = Duration(seconds=1)
WORKERS = (
    Spec("elector", "tests.chaos.server_without_database:elect"),
    WRITER,
    Spec("syncer", "tests.chaos.server_without_database:sync"),
)


async def elect(worker: Worker) -> None:
    await ElectorJob(worker, PATIENCE, able_for=PATIENCE).run()


async def sync(worker: Worker) -> None:
    away = worker.paths.state / "database-away"
    while not await worker.stopped(Duration(milliseconds=100)):
        worker.vitals.attempted(success=not away.exists(), state="waiting: database" if away.exists() else "ok")


if __name__ == "__main__":
    sys.exit(run_server(sys.argv[1:], WORKERS))
