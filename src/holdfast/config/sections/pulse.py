"""When a supervisor calls a worker hung, stalled or crash-looping, and how patient it is with it.

The supervisor looks once a second, so no bound may be so short that one late look is taken for a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, Section
from holdfast.config.schema.scalars import show_duration


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


_HOUR = timedelta(hours=1)


class PulseSettings(Section, frozen=True, kw_only=True):
    """Supervision of workers."""

    heartbeat_after: Annotated[
        timedelta,
        FieldDoc(
            "A worker whose heartbeat is older than this hangs: it is ended and started again.",
            small="a worker that was merely busy is killed in the middle of its work",
            big="a blocked worker goes unnoticed for that long",
            least=_seconds(3),
            most=_HOUR,
        ),
    ] = _seconds(10)
    stalled_after: Annotated[
        timedelta,
        FieldDoc(
            "A worker with a backlog that has finished no attempt for this long is stalled: alive, but not consuming. "
            "It is ended and started again.",
            small="one slow attempt is taken for a stall, and restarts make it slower still",
            big="status is late by that much before anybody does something about it",
            least=_seconds(5),
            most=_HOUR,
        ),
    ] = _seconds(60)
    term_grace: Annotated[
        timedelta,
        FieldDoc(
            "How long a worker may take to end after SIGTERM, before SIGKILL.",
            small="queues are not drained and leases not resigned, so that others wait for them to run out",
            big="a hung worker is replaced that much later",
            least=_seconds(0.1),
            most=_seconds(300),
        ),
    ] = _seconds(5)
    backoff_first: Annotated[
        timedelta,
        FieldDoc(
            "The pause before the first restart of a worker; it doubles with each further one, with jitter.",
            small="a worker that cannot start takes a whole core",
            big="a single crash costs that much",
            least=_seconds(0.05),
            most=_seconds(60),
        ),
    ] = _seconds(0.5)
    backoff_most: Annotated[
        timedelta,
        FieldDoc(
            "The longest pause before a restart.",
            small="a worker that cannot start keeps the machine busy for as long as the cause lasts",
            big="a worker comes back that long after the cause is gone",
            least=_seconds(0.05),
            most=_HOUR,
        ),
    ] = _seconds(30)
    healthy_after: Annotated[
        timedelta,
        FieldDoc(
            "After this long without a fault the pause before a restart begins at `backoff_first` again.",
            small="a worker that dies regularly is never slowed down",
            big="yesterday's faults lengthen today's restart",
            least=_seconds(1),
            most=timedelta(days=1),
        ),
    ] = _seconds(60)
    crash_loop_restarts: Annotated[
        int,
        FieldDoc(
            "This many restarts within `crash_loop_window` mark a worker as crash-looping; it is still restarted.",
            small="a harmless coincidence raises an alarm",
            big="a worker that cannot run raises none",
            least=2,
            most=1_000,
        ),
    ] = 5
    crash_loop_window: Annotated[
        timedelta,
        FieldDoc(
            "The time in which `crash_loop_restarts` are counted.",
            small="restarts that back off are too far apart to be counted together",
            big="a worker stays marked that long after its last crash",
            least=_seconds(10),
            most=timedelta(days=1),
        ),
    ] = _seconds(300)
    supervisor_silent_after: Annotated[
        timedelta,
        FieldDoc(
            "Workers whose supervisor has shown no pulse for this long resign and end: nobody watches over them.",
            small="a supervisor that was merely slow loses all its workers",
            big="a leader without supervision leads on for that long",
            least=_seconds(5),
            most=_HOUR,
        ),
    ] = _seconds(30)
    grace_after: Annotated[
        timedelta,
        FieldDoc(
            "A supervisor that finds its own last look this long ago was away itself (a paused machine), and gives its "
            "workers one round to show a pulse.",
            small="every late look costs a round, and real faults are seen later",
            big="after a pause of the machine healthy workers are taken for hung, all at once",
            least=_seconds(2),
            most=_seconds(600),
        ),
    ] = _seconds(5)

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.grace_after >= self.heartbeat_after:
            yield FieldConflict(
                ("grace_after", "heartbeat_after"),
                f"must be shorter than runtime.heartbeat_after ({show_duration(self.heartbeat_after)}): a pause of the "
                "machine between the two would restart every worker",
            )
        if self.stalled_after <= self.heartbeat_after:
            yield FieldConflict(
                ("stalled_after", "heartbeat_after"),
                f"must be longer than runtime.heartbeat_after ({show_duration(self.heartbeat_after)})",
            )
        if self.supervisor_silent_after <= self.grace_after:
            yield FieldConflict(
                ("supervisor_silent_after", "grace_after"),
                f"must be longer than runtime.grace_after ({show_duration(self.grace_after)})",
            )
        yield from self._backoff_conflicts()

    def _backoff_conflicts(self) -> Iterator[FieldConflict]:
        if self.backoff_most < self.backoff_first:
            yield FieldConflict(
                ("backoff_most", "backoff_first"),
                f"must not be shorter than runtime.backoff_first ({show_duration(self.backoff_first)})",
            )
        least = self.crash_loop_restarts * self.backoff_most
        if self.crash_loop_window < least:
            yield FieldConflict(
                ("crash_loop_window", "crash_loop_restarts", "backoff_most"),
                f"must be at least {show_duration(least)} (runtime.crash_loop_restarts times runtime.backoff_most): a "
                "crash loop would never be recognised",
            )
