"""Commands of a status worker that leads, and its view of the fleet for `holdfast status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.model.control.intent import IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.observed import AgentSeen
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.commands import IntentCommands, record
from holdfast.runtime.intents.store import IntentStore, request_intent
from holdfast.server.status.migration_notices import MigrationNotices
from holdfast.server.status.rules.mass_loss import GATE
from holdfast.server.status.term import StatusTerm

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)

LISTED = 1_000


class StatusCommands(Generic[T, V]):
    def __init__(
        self,
        worker: Worker,
        term: StatusTerm[T, V],
        applied: AppliedIntents[bytes, V],
        intents: IntentStore,
        notices: MigrationNotices | None = None,
    ) -> None:
        self._worker = worker
        self._term = term
        self._rules = term.rules
        self._notices = notices
        self._scope = Scope(ScopeKind.WORKER, self._rules.name)
        self._intents = IntentCommands(worker.context, term.reconciler, applied, term.sync, self._scope, intents)

    def handlers(self) -> Mapping[str, Handler]:
        return {
            **self._intents.handlers(),
            "about": self._about,
            "allow": self._allow,
            "held": self._held,
            "explain": self._explain,
            "orphans": self._orphans,
        }

    async def _held(self, _request: Request, _who: Who) -> Any:
        reconciler = self._term.reconciler
        return {
            "total": len(reconciler.ledger),
            "gates": reconciler.held(),
            "seal": reconciler.seal(GATE),
            "objects": msgspec.to_builtins(reconciler.outstanding()),
        }

    async def _allow(self, request: Request, who: Who) -> str:
        """Release exactly the losses that were shown, and no others."""
        asked = request_intent(request, who, self._worker.clock, IntentKind.ALLOW, self._scope)
        if asked.until is not None:
            raise Declined(f"{self._rules.name}/{GATE} is opened once, for what is held now: use --once")
        if not self._term.mass_loss.held:
            raise Declined(f"{self._rules.name}/{GATE} holds nothing, so there is nothing to allow")
        if request.args.get("seal", seal := self._term.reconciler.seal(GATE)) != seal:
            raise Declined(
                f"the held losses are not the ones that were shown: check again (holdfast plan {self._rules.name})"
            )
        count = self._term.mass_loss.allow(self._worker.clock.now())
        sentence = f"{who.name} allowed the loss of {count:,} agents: “{asked.why}”"
        record(self._worker.context, self._scope, "allow", sentence)
        self._term.reconciler.dirty.mark_all()
        return f"{count:,} agents are declared lost"

    async def _explain(self, request: Request, _who: Who) -> Any:
        """Show everything that a status was computed from."""
        name = str(request.args.get("name", ""))
        name_of = self._rules.object_name
        found = [key for key in self._term.target.written if name_of(key) == name]
        if not found:
            raise Declined(f"there is no status of {name!r}: it is not in the inventory, or was not reported yet")
        return [self._explain_key(key) for key in sorted(found)]

    def _explain_key(self, key: bytes) -> dict[str, Any]:
        rules, mirror, reconciler = self._rules, self._term.mirror, self._term.reconciler
        outstanding = reconciler.outstanding_for(key)
        seen, report, bad = self._term.target.written[key].value, mirror.objects.get(key), mirror.bad.get(key)
        return {
            "name": rules.object_name(key),
            "host": rules.host(key),
            "seen": rules.in_full(seen),
            "report": str(bad) if bad else "" if report is None else msgspec.json.encode(report).decode(),
            "agent_alive": self._has_live_agent(key, seen),
            "revision": mirror.mod_revision(key),
            "outstanding": [] if outstanding is None else [msgspec.to_builtins(outstanding)],
            "migrations": self._notices.about(rules.object_name(key)) if self._notices else [],
        }

    def _has_live_agent(self, key: bytes, seen: V) -> bool:
        if isinstance(seen, AgentSeen):
            return seen.alive
        return self._rules.host(key) not in self._rules.orphans()

    async def _orphans(self, _request: Request, _who: Who) -> Any:
        """List the endpoints that no agent programs: their host has no live agent."""
        rules = self._rules
        hosts = rules.orphans()
        keys = [key for key in sorted(rules.keys()) if rules.host(key) in hosts]
        names = [f"{rules.object_name(key)} on {rules.host(key)}" for key in keys]
        return {"hosts": dict(hosts), "total": len(names), "endpoints": names[:LISTED]}

    async def _about(self, _request: Request, _who: Who) -> Any:
        migrations = {} if self._notices is None else {"migrations": self._notices.view()}
        return {"leading": True, **view(self._term), **migrations}


NAMED = 20
"""Hosts and keys that are named; the rest is counted."""


def view(term: StatusTerm[Any, Any]) -> dict[str, Any]:
    """Counts by state, and the exceptions by name."""
    mirror, behind = term.mirror, term.behind()
    silent = sorted(_silent(term), key=lambda one: one["since_s"])
    off = sorted(_clock_off(term), key=lambda one: -abs(one["by_s"]))
    return {
        "passes": term.reconciler.passes,
        "total": len(term.target.written),
        "states": dict(term.rules.states(term.target.values())),
        "behind": {"revisions": behind.revisions, "waiting": behind.waiting, "s": behind.oldest.total_seconds()},
        "late": term.staleness.last.sentence if term.staleness.last else "",
        "silent": silent[:NAMED],
        "silent_total": len(silent),
        "clock_off": off[:NAMED],
        "own_clock_s": term.staleness.own_offset().total_seconds(),
        "orphans": dict(term.rules.orphans()),
        "bad": [str(bad) for bad in list(mirror.bad.values())[:NAMED]],
        "bad_total": len(mirror.bad),
        "held": len(term.mass_loss.held),
    }


def _silent(term: StatusTerm[Any, Any]) -> Iterator[dict[str, Any]]:
    """Agents whose report is gone, and since when; those that never reported are not among them. A loss that was held
    is older than its row; a new leader, which has not seen it, shows the time of the row."""
    wall, now = term.context.clock.wall(), term.context.clock.now()
    for key, row in term.target.written.items():
        seen, host = row.value, term.rules.host(key)
        if isinstance(seen, AgentSeen) and not seen.alive and seen.reported:
            lost = term.mass_loss.lost_since(host)
            at = min(row.at, wall - (now - lost)) if lost else row.at
            yield {"host": host, "since_s": (wall - at).total_seconds(), "at": f"{at:%H:%M:%S}"}


def _clock_off(term: StatusTerm[Any, Any]) -> Iterator[dict[str, Any]]:
    for host, by in term.staleness.skews().items():
        yield {"host": host, "by_s": by.total_seconds()}
