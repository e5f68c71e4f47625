"""Flows that the backends of drained hosts still have, for the report of this balancer.

`holdfast drain host NAME --wait` returns when every balancer reports none. A count is only given from a measurement
after the drain was programmed here: an earlier one knows nothing of the flows opened since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.balancer.dataplane.api import Counters
from holdfast.model.base.time import Instant


class DrainingHosts:
    def __init__(self) -> None:
        self._programmed: dict[str, Instant] = {}

    def flows(
        self,
        drained: Mapping[str, Collection[str]],
        outstanding: Collection[str],
        passed: Mapping[tuple[str, str], Counters] | None,
        measured: Instant | None,
        now: Instant,
    ) -> Mapping[str, int | None]:
        """Return the flows by host, from those `passed` by frontend and backend; None where the dataplane counts no
        flows (`passed` is None). Missing is a host whose backends have `outstanding` changes, or whose flows were not
        counted since."""
        self._programmed = {
            host: self._programmed.get(host, now)
            for host, backends in drained.items()
            if host in self._programmed or not any(name in outstanding for name in backends)
        }
        if passed is None:
            return dict.fromkeys(self._programmed)
        return {
            host: sum(counted.flows for (_, backend), counted in passed.items() if backend in drained[host])
            for host, since in self._programmed.items()
            if measured is not None and measured > since
        }
