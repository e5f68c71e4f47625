"""The workers `agent-status` and `endpoint-status`. Without `inventory.database` there is nowhere to write to, and they
say that; what they would need is not even loaded then.
"""

from __future__ import annotations

from holdfast.model.base.time import Duration
from holdfast.runtime.daemon.worker import Worker

_IDLE = Duration(seconds=1)


async def agents(worker: Worker) -> None:
    if worker.config.inventory.database is None:
        await _idle(worker)
        return
    from holdfast.server.status import topics as status_topics
    from holdfast.server.status import worker as status_work

    await status_work.run(worker, status_topics.agents)


async def endpoints(worker: Worker) -> None:
    if worker.config.inventory.database is None:
        await _idle(worker)
        return
    from holdfast.server.status import topics as status_topics
    from holdfast.server.status import worker as status_work

    await status_work.run(worker, status_topics.endpoints)


async def _idle(worker: Worker) -> None:
    while not await worker.stopped(_IDLE):
        worker.vitals.attempted(success=True, state="idle: inventory.database is not set")
