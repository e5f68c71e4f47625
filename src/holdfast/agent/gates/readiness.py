"""Gates for a kernel that is not ready: `handler_ready` holds every change, `interface` a single object.

A change that arrives before its handler is ready waits instead of being lost (N10). An object whose interface does
not exist is not a failure: it waits too.
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
    INTERFACE_NOT_READY = "the interface that it needs is not ready"
    INTERFACE_UNFIT = "the interface that it names cannot be used for it"


def unready(handler: Handler) -> str | None:
    """Return what a handler waits for; asked by the gate, and again just before changes are handed over."""
    return handler.ready()  # protection: N10


@dataclass
class HandlerReadyGate:
    handlers: Sequence[Handler]
    since: Instant = NEVER

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        for handler in self.handlers:
            waits_for = unready(handler)
            if waits_for is not None:
                self.since = self.since or now
                opens, detail = f"wait until {handler.name} is ready", f"{handler.name}: {waits_for}"
                return Closed("handler_ready", ReadinessReason.NOT_READY, self.since, opens, detail)
        self.since = NEVER
        return None


@dataclass(slots=True)
class InterfaceGate:
    dataplane: HostDataplane

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is Op.DELETE or change.new is None:
            return None
        reason = self.dataplane.blocked_by(change.key, change.new.value.shape)
        if reason is None:
            return None
        detail, _, way_out = reason.partition(": ")
        if way_out:
            return Closed("interface", ReadinessReason.INTERFACE_UNFIT, now, way_out, detail)
        return Closed("interface", ReadinessReason.INTERFACE_NOT_READY, now, "bring the interface up", reason)
