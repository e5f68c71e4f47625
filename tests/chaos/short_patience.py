"""A server that tries the database often and hands over after three seconds, for tests that take the database away.

python -m tests.chaos.short_patience server.name=s1 …
"""

from __future__ import annotations

import sys

from holdfast.lab.fleet.fenced_writer import WRITER
from holdfast.lab.fleet.server import run_server
from holdfast.model.base.time import Duration
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.server.election import trial
from holdfast.server.election.worker import ElectorJob
from holdfast.server.syncer import worker as syncer

JOBS = (("elector", "elect"), ("syncer", "sync"))
PATIENCE = Duration(seconds=3)
"""Longer than followers take to find out and to publish that the database is away."""


async def elect(worker: Worker) -> None:
    await ElectorJob(worker, PATIENCE).run()


async def sync(worker: Worker) -> None:
    trial.TRY_EVERY = Duration(milliseconds=200)
    await syncer.run(worker)


if __name__ == "__main__":
    elector, syncing = (Spec(name, f"tests.chaos.short_patience:{job}") for name, job in JOBS)
    sys.exit(run_server(sys.argv[1:], (elector, syncing, WRITER)))
