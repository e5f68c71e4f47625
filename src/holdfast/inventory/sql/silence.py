"""Connections that give up on a PostgreSQL server that does not answer.

The server's own time limits do not help while it is frozen, and keepalives do not either: the kernel still acknowledges
every packet. A statement would wait for ever, and the worker that waits for it would be taken for stalled and restarted
(rule 11). Only silence counts: a large result that comes slowly is an answer.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

T = TypeVar("T")

_POLL_S = 0.1
"""Interval at which a connection that waits checks how long it has waited."""


class SilenceLimitedConnection(psycopg.Connection[Any]):
    """Closes itself when the server has been silent for `answer_within` seconds; without a limit while that is None.

    A COMMIT that was cut short may have been carried out: whoever sent it has to read again (C47)."""

    answer_within: float | None = None

    def wait(self, gen: PQGen[T], interval: float = _POLL_S, timeout: float | None = None) -> T:
        if self.answer_within is None:
            return super().wait(gen, interval)
        return super().wait(self._limited(gen, self.answer_within), interval)

    def _limited(self, gen: PQGen[T], limit: float) -> Generator[Wait, Ready | int, T]:
        last = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    last = now
                elif now - last > limit:
                    self.close()
                    raise psycopg.OperationalError(f"the server has not answered for {now - last:.0f} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
