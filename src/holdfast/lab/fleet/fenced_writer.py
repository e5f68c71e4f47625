"""Leader-only worker that demonstrates the fence: writes numbered entries, a few per second, each fenced by its term.

It confirms its term with the store before it begins, writes while its server leads, and counts accepted and refused
writes (`counts` on its control socket). A process that was frozen past its lease may wake with a write that it has
prepared; this worker sends that write, to show that the fence refuses it.
"""

from __future__ import annotations

import asyncio
import os
from typing import NoReturn

import msgspec
import structlog

from holdfast.model.base.keys import own
from holdfast.model.base.region import Region, configured_region
from holdfast.model.base.time import NEVER, Duration
from holdfast.model.control.leader import LEADER
from holdfast.runtime.control import Request, Who
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.store_client import open_store
from holdfast.server import server_name
from holdfast.server.election.leadership import Leadership, Leading, while_leading
from holdfast.store.api import Deposed, Store, StoreAway, StoreError
from holdfast.store.fenced.store import FencedStore

log = structlog.get_logger(__name__)

WRITER = Spec("writer", "holdfast.lab.fleet.fenced_writer:run")
EVERY = Duration(milliseconds=200)
_OVERDUE = 74
_FOLLOWING = "following"


class WriterEntry(msgspec.Struct, frozen=True):
    """Value of one write; `number` counts the writes of this process."""

    server: str
    pid: int
    term: int
    number: int


class WriterCounts(msgspec.Struct):
    """Outcome of this process's writes so far."""

    accepted: int = 0
    refused: int = 0
    reason: str = ""
    """Why the last refused write was refused, in one sentence."""
    failed: int = 0
    """Writes with an unknown outcome: the store was unreachable."""
    assumed_term: int = 0
    """Term under which it is writing; 0 while it is not."""
    terms: dict[int, int] = {}
    """Accepted writes per term."""


def writes_prefix(region: Region) -> bytes:
    return own("lab/writes/")(region).encode()


class Writer:
    def __init__(self, worker: Worker, store: Store) -> None:
        self._worker = worker
        self._store = store
        self._leadership = Leadership.of(worker)
        region = configured_region(worker.config)
        self._leader_key = LEADER.key(region, "leader")
        self._name = server_name(worker)
        self._key = writes_prefix(region) + self._name.encode()
        self._number = 0
        self._last = NEVER
        """Start of the last write that was answered."""
        self._late_write: asyncio.Task[bool] | None = None
        self.counts = WriterCounts()
        worker.handlers["counts"] = self._show

    async def run(self) -> None:
        self._worker.vitals.state = _FOLLOWING
        await while_leading(self._leadership, self._write_one_term, self._worker.stopping, die=_die)

    async def _show(self, _request: Request, _who: Who) -> object:
        return msgspec.to_builtins(self.counts, str_keys=True)

    async def _write_one_term(self, leading: Leading) -> None:
        try:
            confirmed = await self._leadership.confirm(self._store, self._leader_key)
        except (StoreAway, StoreError) as error:
            self._worker.vitals.attempted(success=False, state="waiting: store")
            log.debug("cannot confirm the term", term=leading.term, error=str(error))
            return
        if isinstance(confirmed, Leading) and confirmed.term == leading.term:
            await self._write_repeatedly(FencedStore(self._store, self._leader_key, leading.term))

    async def _write_repeatedly(self, fenced: FencedStore) -> None:
        """Write until cancelled, which is how a worker learns that its leadership has ended."""
        self.counts.assumed_term = fenced.term
        began = self._last = self._worker.clock.now()
        try:
            while await self._write(fenced):
                self._last = began
                if await self._worker.stopped(EVERY):
                    return
                began = self._worker.clock.now()
        except asyncio.CancelledError:
            if self._was_frozen():
                # In a task of its own: a late write must not delay the end of leadership.
                self._late_write = asyncio.create_task(self._write(fenced))
            raise
        finally:
            self.counts.assumed_term = 0
            self._worker.vitals.state = _FOLLOWING

    def _was_frozen(self) -> bool:
        """Return True if this process was not running when its lease expired.

        A write that was cancelled does not count: a process that wakes may begin one just before it checks its lease.
        """
        return self._worker.clock.now() - self._last >= self._worker.config.server.renew_deadline

    async def _write(self, fenced: FencedStore) -> bool:
        """Make one attempt. Returns False if this term is over, so that no further attempt can succeed."""
        self._number += 1
        entry = WriterEntry(self._name, os.getpid(), fenced.term, self._number)
        try:
            await fenced.put(self._key, msgspec.json.encode(entry))
        except Deposed as refusal:
            log.warning("write refused", server=self._name, number=self._number, reason=str(refusal))
            self.counts.refused += 1
            self.counts.reason = str(refusal)
            self._worker.vitals.attempted(success=False)
            return False
        except (StoreAway, StoreError) as error:
            self.counts.failed += 1
            self._worker.vitals.attempted(success=False, state="waiting: store")
            log.debug("write failed", server=self._name, number=self._number, error=str(error))
            return True
        self.counts.accepted += 1
        self.counts.terms[fenced.term] = self.counts.terms.get(fenced.term, 0) + 1
        self._worker.vitals.attempted(success=True, state=f"writing in term {fenced.term}")
        return True


def _die(why: str) -> NoReturn:
    log.error("lease expired during leader work; process exits", why=why)
    os._exit(_OVERDUE)


async def run(worker: Worker) -> None:
    store = open_store(worker.config.store)
    try:
        await Writer(worker, store).run()
    finally:
        await store.close()
