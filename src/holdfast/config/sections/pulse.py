"""Supervision: when a worker counts as hung, stalled or crash-looping, and how it is restarted.

The supervisor checks once a second, so every bound is long enough that one late check does not count as a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, Section, seconds
from holdfast.config.schema.scalars import show_duration

_HOUR = timedelta(hours=1)


class PulseSettings(Section, frozen=True, kw_only=True):
    """Supervision of workers."""

    heartbeat_after: Annotated[
        timedelta,
        FieldDoc(
            "A worker whose heartbeat is older than this counts as hung and is restarted.",
            small="a busy worker is killed in the middle of its work",
            big="a blocked worker goes unnoticed for that long",
            least=seconds(3),
            most=_HOUR,
            on_reload=True,
        ),
    ] = seconds(10)
    stalled_after: Annotated[
        timedelta,
        FieldDoc(
            "A worker with a backlog that has completed no attempt for this long counts as stalled (alive, but not "
            "consuming) and is restarted.",
            small="one slow attempt counts as a stall, and restarts delay it further",
            big="a stalled worker delays its work for that long before it is restarted",
            least=seconds(5),
            most=_HOUR,
            on_reload=True,
        ),
    ] = seconds(60)
    term_grace: Annotated[
        timedelta,
        FieldDoc(
            "Time between SIGTERM and SIGKILL when a worker is stopped.",
            small="queues are not drained and leases not revoked, so that other servers wait for them to expire",
            big="a hung worker is replaced that much later",
            least=seconds(0.1),
            most=seconds(300),
            on_reload=True,
        ),
    ] = seconds(5)
    backoff_first: Annotated[
        timedelta,
        FieldDoc(
            "Delay before the first restart of a worker; it doubles with each further restart, with jitter.",
            small="a worker that fails at its start takes a whole core",
            big="a single crash interrupts the work for that long",
            least=seconds(0.05),
            most=seconds(60),
            on_reload=True,
        ),
    ] = seconds(0.5)
    backoff_most: Annotated[
        timedelta,
        FieldDoc(
            "Longest delay before a restart.",
            small="a worker that fails at its start keeps the machine busy until the cause is fixed",
            big="a worker returns up to that long after the cause is fixed",
            least=seconds(0.05),
            most=_HOUR,
            on_reload=True,
        ),
    ] = seconds(30)
    healthy_after: Annotated[
        timedelta,
        FieldDoc(
            "After this long without a fault the delay before a restart is reset to `backoff_first`.",
            small="a worker that crashes regularly is always restarted without delay",
            big="old faults delay the next restart",
            least=seconds(1),
            most=timedelta(days=1),
            on_reload=True,
        ),
    ] = seconds(60)
    crash_loop_restarts: Annotated[
        int,
        FieldDoc(
            "A worker with this many restarts within `crash_loop_window` counts as crash-looping; it is still "
            "restarted.",
            small="a coincidence raises an alert",
            big="a worker that cannot run raises no alert",
            least=2,
            most=1_000,
            on_reload=True,
        ),
    ] = 5
    crash_loop_window: Annotated[
        timedelta,
        FieldDoc(
            "Period in which `crash_loop_restarts` are counted.",
            small="restarts with backoff are too far apart to be counted together",
            big="a worker counts as crash-looping for that long after its last crash",
            least=seconds(10),
            most=timedelta(days=1),
            on_reload=True,
        ),
    ] = seconds(300)
    supervisor_silent_after: Annotated[
        timedelta,
        FieldDoc(
            "Workers step down and exit when their supervisor has shown no heartbeat for this long.",
            small="a slow supervisor loses all its workers",
            big="a leader without supervision continues for that long",
            least=seconds(5),
            most=_HOUR,
            on_reload=True,
        ),
    ] = seconds(30)
    grace_after: Annotated[
        timedelta,
        FieldDoc(
            "A supervisor whose own last check was this long ago was paused itself (a paused machine) and gives its "
            "workers one round to show a heartbeat.",
            small="every late check costs a round and delays the detection of real faults",
            big="after a pause of the machine all healthy workers count as hung",
            least=seconds(2),
            most=seconds(600),
            on_reload=True,
        ),
    ] = seconds(5)

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
                f"must be at least {show_duration(least)} (runtime.crash_loop_restarts times runtime.backoff_most): "
                "else a crash loop is never detected",
            )
