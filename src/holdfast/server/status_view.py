"""How the fleet is, as a status worker that leads knows it: for `holdfast status`, the API and whoever else asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.model.fleet.observed import AgentSeen
from holdfast.server.status import Reign

NAMED = 20
"""Hosts and keys that are named; the rest is counted."""


def view(reign: Reign[Any, Any]) -> dict[str, Any]:
    """Counts by state, and what is not as it should be by name."""
    mirror, behind = reign.topic.mirror, reign.behind()
    silent = sorted(_silent(reign), key=lambda one: one["since_s"])
    off = sorted(_off(reign), key=lambda one: -abs(one["by_s"]))
    return {
        "total": len(reign.target.written),
        "states": dict(reign.topic.states(reign.target.values())),
        "behind": {"revisions": behind.revisions, "waiting": behind.waiting, "s": behind.oldest.total_seconds()},
        "late": reign.around.staleness.last.sentence if reign.around.staleness.last else "",
        "silent": silent[:NAMED],
        "silent_total": len(silent),
        "clock_off": off[:NAMED],
        "orphans": dict(reign.topic.subject.orphans()),
        "bad": [str(bad) for bad in list(mirror.bad.values())[:NAMED]],
        "bad_total": len(mirror.bad),
        "held": len(reign.mass_loss.held),
    }


def _silent(reign: Reign[Any, Any]) -> Iterator[dict[str, Any]]:
    """Agents whose report is gone, since when; those that never reported are not missed."""
    wall = reign.around.clock.wall()
    for key, row in reign.target.written.items():
        seen, at = row.value, row.at
        if isinstance(seen, AgentSeen) and not seen.alive and seen.reported:
            yield {
                "host": reign.topic.subject.host(key),
                "since_s": (wall - at).total_seconds(),
                "at": f"{at:%H:%M:%S}",
            }


def _off(reign: Reign[Any, Any]) -> Iterator[dict[str, Any]]:
    staleness = reign.around.staleness
    for host in staleness.offsets:
        by = staleness.skew(host).total_seconds()
        if by:
            yield {"host": host, "by_s": by}
