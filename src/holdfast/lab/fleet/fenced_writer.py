"""A leader-only job that shows who may write: numbered entries, a few per second, each fenced by its term.

It asks the store before it begins (`confirm`), writes while its server leads, and counts what was accepted and what was
refused, with the refusal's own words. A process that was frozen past its lease wakes with a write in its hand, as any
job would; this one sends it, so that everybody can see the fence refuse it. `counts` on its control socket tells.
"""

from __future__ import annotations

import asyncio
import os
from typing import NoReturn

import msgspec
import structlog

from holdfast.model.base.keys import own
from holdfast.model.base.region import Region
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
    """What one write says: who wrote it, under which term, and the how-manieth it is of this process."""

    server: str
    pid: int
    term: int
    number: int


class WriterCounts(msgspec.Struct):
    """What became of this process's writes so far."""

    accepted: int = 0
    refused: int = 0
    reason: str = ""
    """Why the last refused one was refused, in one sentence."""
    failed: int = 0
    """Neither accepted nor refused for certain: the store was away."""
    believes: int = 0
    """The term that it believes to write under; 0: it does not write."""
    terms: dict[int, int] = {}
    """How many were accepted under each term."""


def writes_prefix(region: Region) -> bytes:
    return own("lab/writes/")(region).encode()


class Writer:
    def __init__(self, worker: Worker, store: Store) -> None:
        self._worker = worker
        self._store = store
        self._leadership = Leadership.of(worker)
        region = Region(worker.config.store.region or "")
        self._leader_key = LEADER.key(region, "leader")
        self._name = server_name(worker)
        self._key = writes_prefix(region) + self._name.encode()
        self._number = 0
        self._last = NEVER
        """When the last write that was answered began."""
        self._in_hand: asyncio.Task[bool] | None = None
        self.counts = WriterCounts()
        worker.handlers["counts"] = self._show

    async def run(self) -> None:
        self._worker.vitals.state = _FOLLOWING
        await while_leading(self._leadership, self._write_one_term, self._worker.stopping, die=_die)

    async def _show(self, _request: Request, _who: Who) -> object:
        return msgspec.to_builtins(self.counts, str_keys=True)

    async def _write_one_term(self, said: Leading) -> None:
        try:
            confirmed = await self._leadership.confirm(self._store, self._leader_key)
        except (StoreAway, StoreError) as error:
            self._worker.vitals.attempted(success=False, state="waiting: store")
            log.debug(f"the term cannot be confirmed: {error}")
            return
        if isinstance(confirmed, Leading) and confirmed.term == said.term:
            await self._write_on(FencedStore(self._store, self._leader_key, said.term))

    async def _write_on(self, fenced: FencedStore) -> None:
        """Writes until cancelled, which is how the end of leadership arrives."""
        self.counts.believes = fenced.term
        began = self._last = self._worker.clock.now()
        try:
            while await self._write(fenced):
                self._last = began
                if await self._worker.stopped(EVERY):
                    return
                began = self._worker.clock.now()
        except asyncio.CancelledError:
            if self._overslept():
                # In a task of its own: a late write must not hold up the end of leadership.
                self._in_hand = asyncio.create_task(self._write(fenced))
            raise
        finally:
            self.counts.believes = 0
            self._worker.vitals.state = _FOLLOWING

    def _overslept(self) -> bool:
        """Whether this process was away when its leadership ran out. A write that was cut off does not count: who wakes
        may begin one just before it looks at its lease."""
        return self._worker.clock.now() - self._last >= self._worker.config.server.renew_deadline

    async def _write(self, fenced: FencedStore) -> bool:
        """One attempt; False when there is no point in another one under this term."""
        self._number += 1
        entry = WriterEntry(self._name, os.getpid(), fenced.term, self._number)
        try:
            await fenced.put(self._key, msgspec.json.encode(entry))
        except Deposed as refusal:
            log.warning(f"write {self._number} of {self._name} was refused: {refusal}")
            self.counts.refused += 1
            self.counts.reason = str(refusal)
            self._worker.vitals.attempted(success=False)
            return False
        except (StoreAway, StoreError) as error:
            self.counts.failed += 1
            self._worker.vitals.attempted(success=False, state="waiting: store")
            log.debug(f"write {self._number} of {self._name} failed: {error}")
            return True
        self.counts.accepted += 1
        self.counts.terms[fenced.term] = self.counts.terms.get(fenced.term, 0) + 1
        self._worker.vitals.attempted(success=True, state=f"writes under term {fenced.term}")
        return True


def _die(why: str) -> NoReturn:
    log.error(why)
    os._exit(_OVERDUE)


async def run(worker: Worker) -> None:
    store = open_store(worker.config.store)
    try:
        await Writer(worker, store).run()
    finally:
        await store.close()
