"""Damping of endpoint statuses: a status that another program overwrites again and again is written less often. Pure.

Two agents of one name would otherwise set each other's statuses right several times a second, and every server and
webhook would follow. A state that changes here is written at once; so is one that was overwritten for the first time.
From then on the pauses double from a second to a minute, until nobody has touched the status for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from holdfast.model.base.time import Duration, Instant
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.reconcile import Backoff

log = structlog.get_logger(__name__)

PAUSES = Backoff(Duration(seconds=1), Duration(seconds=60))
ON_ITS_WAY = Duration(seconds=5)
"""Longest time in which our own write may not have been delivered to us."""
QUIET = 4
"""Times the last pause without a foreign write, after which the next one counts as the first."""


class _Write(NamedTuple):
    state: EndpointState
    revision: int
    at: Instant
    overwritten: int
    """How often in a row another program overwrote it before this write."""

    def pause(self) -> Duration:
        return PAUSES.after(self.overwritten) if self.overwritten else Duration(0)


@dataclass
class StatusDamping:
    _writes: dict[bytes, _Write] = field(default_factory=dict)

    def may_write(self, key: bytes, state: EndpointState, now: Instant, seen: int) -> bool:
        """Return whether to write a status that differs from the store's, as seen at that revision."""
        last = self._writes.get(key)
        if last is None or last.state is not state:
            return True
        since = now - last.at
        is_on_its_way = seen < last.revision and since < ON_ITS_WAY  # later, the store was restored from a backup
        return not is_on_its_way and since >= last.pause()

    def wrote(self, statuses: Mapping[bytes, EndpointState], revision: int, now: Instant) -> None:
        """Record that the store took these."""
        for key, state in statuses.items():
            last, overwritten = self._writes.get(key), 0
            if last is not None and last.state is state and now - last.at <= max(QUIET * last.pause(), PAUSES.most):
                overwritten = last.overwritten + 1
            if overwritten == 1:
                log.warning("another program overwrites the status of an endpoint", key=key.decode(errors="replace"))
            self._writes[key] = _Write(state, revision, now, overwritten)

    def forget_all_but(self, keys: Collection[bytes]) -> None:
        """Forget statuses of endpoints that are gone."""
        for key in self._writes.keys() - keys:
            del self._writes[key]
