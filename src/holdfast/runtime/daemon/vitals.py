"""Vitals: health of a worker as its own event loop knows it; the heartbeat writes it to the board."""

from __future__ import annotations

from typing import Protocol

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.runtime.clock import Clock
from holdfast.runtime.daemon.pulse import Pulse

_STATE_BYTES = 120  # a board cell has little more room
_STARTING = "starting"


class Queue(Protocol):
    """Source of the backlog that a pulse shows."""

    def backlog(self) -> int: ...

    def oldest(self) -> Instant: ...


class Vitals:
    """Written by the job, read by the heartbeat, so that a job that has stopped shows as a growing backlog."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: Queue | None = None
        self._attempt = NEVER
        self._success = NEVER
        self._pending = NEVER
        self._waiting = NEVER
        self.state = _STARTING
        self.duty = NEVER
        self.audit = NEVER
        self.warm = True
        self.config = 0
        """Digest of the configuration that the worker runs with."""

    def is_starting(self) -> bool:
        """True until the first attempt."""
        return self.state == _STARTING

    def consumes(self, queue: Queue) -> None:
        """Set the queue whose backlog the pulse shows."""
        self._queue = queue

    def attempted(self, *, success: bool, state: str | None = None) -> None:
        """Note the end of an attempt. The state is not `ok` before the first successful one."""
        now = self._clock.now()
        self._attempt = now
        if success:
            self._success = now
        if state is not None:
            self.state = state
        elif success and self.is_starting():
            self.state = "ok"

    def audited(self, interval: Duration) -> None:
        """Note the end of a full pass; it is overdue after three intervals without another one."""
        self.audit = self._clock.now() + 3 * interval

    def pulse(self, pid: int, now: Instant) -> Pulse:
        backlog = None if self._queue is None else self._queue.backlog()
        if not backlog:
            self._pending = NEVER
        elif not self._pending:
            self._pending = now
        if not self.state.startswith("waiting"):
            self._waiting = NEVER
        elif not self._waiting:
            self._waiting = now
        return Pulse(
            pid=pid,
            beat=now,
            attempt=self._attempt,
            success=self._success,
            backlog=backlog,
            pending=self._pending,
            oldest=NEVER if self._queue is None else self._queue.oldest(),
            state=self.state.encode()[:_STATE_BYTES].decode(errors="ignore"),
            duty=self.duty,
            audit=self.audit,
            warm=self.warm,
            waiting=self._waiting,
            config=self.config,
        )
