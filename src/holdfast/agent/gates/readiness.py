"""Waiting for the kernel's side: the gates of handlers that are not ready and of objects that cannot be there yet.

A change that comes before its handler is ready is not swallowed, it waits (N10). An object whose interface does not
exist is not a failure, it waits too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.agent.dataplane.api import Handler, HostDataplane
from holdfast.model.base.time import NEVER, Instant
from holdfast.reconcile import Change, Closed, Op, Reason


class ReadinessReason(Reason):
    NOT_READY = "a handler is not ready to take changes"
    OBSTACLE = "it cannot be there yet"


def unready(handler: Handler) -> str | None:
    """N10: what a handler waits for. Asked by the gate, and again just before anything is handed over."""
    return handler.ready()


@dataclass
class HandlerReadyGate:
    """Holds everything while a handler is not ready."""

    handlers: Sequence[Handler]
    since: Instant = NEVER

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        for handler in self.handlers:
            waits_for = unready(handler)
            if waits_for is not None:
                self.since = self.since or now
                opens = f"{handler.name} being ready"
                return Closed("ready", ReadinessReason.NOT_READY, self.since, opens, f"{handler.name}: {waits_for}")
        self.since = NEVER
        return None


@dataclass(slots=True)
class InterfaceGate:
    """Holds what the dataplane says cannot be there now."""

    dataplane: HostDataplane

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is Op.DELETE or change.new is None:
            return None
        obstacle = self.dataplane.obstacle(change.key, change.new.value.shape)
        if obstacle is None:
            return None
        return Closed("obstacle", ReadinessReason.OBSTACLE, now, "an event of the kernel", obstacle)
