"""A server whose status workers give up on a silent database after two seconds, for tests that freeze the database.

python -m tests.chaos.short_silence server.name=s1 …
"""

from __future__ import annotations

import sys

from holdfast.inventory.sql import engine
from holdfast.lab.fleet.fenced_writer import WRITER
from holdfast.lab.fleet.server import run_server
from holdfast.model.base.time import Duration
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.server import workers

SILENCE_S = 2.0


async def agents(worker: Worker) -> None:
    _shorten()
    await workers.agent_status(worker)


async def endpoints(worker: Worker) -> None:
    _shorten()
    await workers.endpoint_status(worker)


def _shorten() -> None:
    original = engine.answer_within

    def short(statement: Duration) -> float | None:
        return None if original(statement) is None else SILENCE_S

    engine.answer_within = short


JOBS = {"agent-status": "agents", "endpoint-status": "endpoints"}

if __name__ == "__main__":
    others = [spec for spec in workers.WORKERS if spec.name not in JOBS]
    status = [Spec(name, f"tests.chaos.short_silence:{job}") for name, job in JOBS.items()]
    sys.exit(run_server(sys.argv[1:], (*others, *status, WRITER)))
