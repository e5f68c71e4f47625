"""Worker processes of a server, and the cells that they need on the board.

The status workers are imported only where `inventory.database` is set: a server without an inventory loads no SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.server.election.leadership import LEADERSHIP_CELL, term_ended_cell
from holdfast.server.identity.gate import IDENTITY_CELL
from holdfast.server.leader_work import idle_without_inventory

ELECTOR = Spec("elector", "holdfast.server.election.worker:elect")
SYNCER = Spec("syncer", "holdfast.server.syncer.worker:run")
AGENT_STATUS = Spec("agent-status", "holdfast.server.workers:agent_status")
ENDPOINT_STATUS = Spec("endpoint-status", "holdfast.server.workers:endpoint_status")
WORKERS: tuple[Spec, ...] = (ELECTOR, SYNCER, AGENT_STATUS, ENDPOINT_STATUS)


def cells(workers: Sequence[Spec]) -> list[str]:
    """Cells of a server's board besides the pulses: leadership, identity, and the terms that workers found to be
    over."""
    return [LEADERSHIP_CELL, IDENTITY_CELL, *(term_ended_cell(spec.name) for spec in workers)]


async def agent_status(worker: Worker) -> None:
    await _run_status(worker, "agents")


async def endpoint_status(worker: Worker) -> None:
    await _run_status(worker, "endpoints")


async def _run_status(worker: Worker, kind: str) -> None:
    if worker.config.inventory.database is None:
        await idle_without_inventory(worker)
        return
    kinds, status = await asyncio.to_thread(_import_status)
    await status.run(worker, getattr(kinds, kind))


def _import_status() -> tuple[ModuleType, ModuleType]:
    """Import outside the event loop: on a starved machine it takes longer than a heartbeat may be old, and the worker
    would be ended as hung at every start (C48)."""
    return import_module("holdfast.server.status.kinds"), import_module("holdfast.server.status.worker")
