"""Pruning of the inventory's history after each resync. A failure is logged with its cause, counted, shown by
`holdfast history`, and retried until it succeeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

import structlog

from holdfast.inventory.api import Fence, Inventory
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.time import NEVER, Duration
from holdfast.reconcile import Away
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.decision_log import Decision
from holdfast.server.syncer.metrics import SyncerMetrics

log = structlog.get_logger(__name__)

HISTORY = Duration(days=90)
"""Retention of the inventory's change history; `holdfast undo` reaches no further back. A delete in a store that was
restored from an older backup has no witness any more."""
PORTIONS = 20
"""Transactions per call, so that the tasks beside this one are not kept waiting."""
RETRY = Duration(seconds=60)


class HistoryPruning:
    """Prunes in portions, as often as it is called. `held` returns the keys whose deletes are outstanding: the changes
    that name them may be their witnesses."""

    def __init__(
        self,
        inventory: Inventory,
        run_in_thread: RunInThread,
        fence: Fence,
        context: Context,
        metrics: SyncerMetrics,
        held: Callable[[], Collection[bytes]],
    ) -> None:
        self._inventory = inventory
        self._run_in_thread = run_in_thread
        self._fence = fence
        self._context = context
        self._metrics = metrics
        self._held = held
        self._portions: Iterator[int] | None = None
        self._retry_at = NEVER
        self._cause = ""

    def begin(self) -> None:
        """Prune from the oldest change on; a pruning that is under way goes on."""
        self._portions = self._portions or self._started()

    async def advance(self) -> None:
        """Prune the next portions, if any are due. Raises `Deposed`."""
        if self._portions is None or self._context.clock.now() < self._retry_at:
            return
        try:
            for _ in range(PORTIONS):
                done = await self._run_in_thread(partial(next, self._portions, None))
                if done is None:
                    self._finish()
                    return
                self._metrics.history_pruned.inc(done)
        except Away as away:
            self._fail(away)

    @property
    def failing(self) -> str:
        """Cause of the last failure; empty while pruning works."""
        return self._cause

    def _started(self) -> Iterator[int]:
        before = self._context.clock.wall() - HISTORY
        return self._inventory.prune_history(self._fence, before, self._held())

    def _finish(self) -> None:
        self._portions = None
        self._metrics.history_failing.set(0)
        if self._cause:
            log.info("history pruned again", last_failure=self._cause)
        self._cause = ""

    def _fail(self, away: Away) -> None:
        """A failed iterator yields no more: the next attempt starts anew."""
        cause = str(away)
        self._portions = self._started()
        self._retry_at = self._context.clock.now() + RETRY
        self._metrics.history_failures.inc()
        self._metrics.history_failing.set(1)
        if cause != self._cause:
            log.warning("history not pruned; retrying", reason=cause, retry_s=RETRY.total_seconds())
            sentence = f"history older than {HISTORY.days} days was not pruned: {cause}; retrying every minute"
            record = Decision(self._context.clock.wall(), "syncer", "prune", "history", "failed", sentence)
            self._context.decisions.write([record])
        self._cause = cause
