"""What an operator can ask a status worker that leads: pause, resume, what is held, let losses through, explain.

How the fleet is, as a status worker that leads knows it: for `holdfast status`, the API and whoever else asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from holdfast.model.fleet.observed import AgentSeen
from holdfast.reconcile import PauseGate
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.intents.book import request_intent
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.server.status.mass_loss import GATE
from holdfast.server.status.migration_notices import MigrationNotices
from holdfast.server.status.term import StatusTerm

log = structlog.get_logger(__name__)

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)

LISTED = 1_000


class StatusCommands(Generic[T, V]):
    def __init__(self, worker: Worker, reign: StatusTerm[T, V], notices: MigrationNotices | None = None) -> None:
        self._worker = worker
        self._reign = reign
        self._notices = notices

    def offer(self) -> None:
        reign = self._reign
        IntentCommands(self._worker, reign.reconciler, PauseGate(reign.topic.name), reign.sync).offer()
        self._worker.handlers |= {
            "allow": self._allow,
            "held": self._held,
            "explain": self._explain,
            "orphans": self._orphans,
        }

    async def _held(self, _request: Request, _who: Who) -> Any:
        reconciler = self._reign.reconciler
        return {
            "total": len(reconciler.ledger),
            "gates": reconciler.held(),
            "seal": reconciler.seal(GATE),
            "objects": msgspec.to_builtins(reconciler.outstanding()),
        }

    async def _allow(self, request: Request, who: Who) -> str:
        """Exactly what was shown: as many others are not those."""
        asked = request_intent(request, who, self._worker.clock)
        if asked.until is not None:
            raise Declined(f"{self._reign.topic.name}/{GATE} is opened once, for what is held now: use --once")
        if not self._reign.mass_loss.held:
            raise Declined(f"{self._reign.topic.name}/{GATE} holds nothing, so there is nothing to allow")
        if request.args.get("seal", seal := self._reign.reconciler.seal(GATE)) != seal:
            raise Declined(f"others than were shown are held now: look again (holdfast plan {self._reign.topic.name})")
        count = self._reign.mass_loss.allow()
        sentence = f"{who.name} said that {count:,} agents are gone: “{asked.why}”"
        log.info(sentence)
        record = Decision(asked.at, self._worker.name, "allow", self._reign.topic.name, "asked", sentence)
        self._worker.decisions.write([record])
        self._reign.reconciler.dirty.mark_all()
        return f"{count:,} agents count as gone from now on"

    async def _explain(self, request: Request, _who: Who) -> Any:
        """Everything that a status was computed from."""
        name = str(request.args.get("name", ""))
        called = self._reign.topic.subject.name
        found = [key for key in self._reign.target.written if called(key) == name]
        if not found:
            raise Declined(f"nothing is observed of {name!r}: it is not in the inventory, or was not reported yet")
        return [self._story(key) for key in sorted(found)]

    def _story(self, key: bytes) -> dict[str, Any]:
        reign, subject = self._reign, self._reign.topic.subject
        seen, report, bad = (
            reign.target.written[key].value,
            reign.topic.mirror.objects.get(key),
            reign.topic.mirror.bad.get(key),
        )
        outstanding = reign.reconciler.outstanding_for(key)
        return {
            "name": subject.name(key),
            "host": subject.host(key),
            "seen": subject.in_full(seen),
            "report": str(bad) if bad else "" if report is None else msgspec.json.encode(report).decode(),
            "agent_alive": self._lives(key, seen),
            "revision": reign.topic.mirror.mod_revision(key),
            "outstanding": [] if outstanding is None else [msgspec.to_builtins(outstanding)],
            "migrations": self._notices.about(subject.name(key)) if self._notices else [],
        }

    def _lives(self, key: bytes, seen: V) -> bool:
        if isinstance(seen, AgentSeen):
            return seen.alive
        return self._reign.topic.subject.host(key) not in self._reign.topic.subject.orphans()

    async def _orphans(self, _request: Request, _who: Who) -> Any:
        """Endpoints that nobody will program: their host has no live agent."""
        subject = self._reign.topic.subject
        lonely = subject.orphans()
        keys = [key for key in sorted(subject.keys()) if subject.host(key) in lonely]
        names = [f"{subject.name(key)} on {subject.host(key)}" for key in keys]
        return {"hosts": dict(lonely), "total": len(names), "endpoints": names[:LISTED]}


NAMED = 20
"""Hosts and keys that are named; the rest is counted."""


def view(reign: StatusTerm[Any, Any]) -> dict[str, Any]:
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


def _silent(reign: StatusTerm[Any, Any]) -> Iterator[dict[str, Any]]:
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


def _off(reign: StatusTerm[Any, Any]) -> Iterator[dict[str, Any]]:
    staleness = reign.around.staleness
    for host in staleness.offsets:
        by = staleness.skew(host).total_seconds()
        if by:
            yield {"host": host, "by_s": by}
