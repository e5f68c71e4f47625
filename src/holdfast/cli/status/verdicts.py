"""Verdicts on store and inventory, as `holdfast status` shows them: one problem for one event. Pure.

After a restore every server, agent and balancer reaches a verdict from what it remembers itself, and the syncer holds
changes for it. The leader's verdict is the problem; whatever reports the same one is counted in its sentence. A daemon
whose verdict the leader does not share stays a problem of its own: only its memory shows what happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.status.view import Problem, StatusView
from holdfast.model.control.identity import StoreRefusal
from holdfast.server.election.views import ElectorView, FleetVerdict
from holdfast.store.identity import ADOPT, ADOPT_INVENTORY, StoreVerdict

_STORE, _INVENTORY = StoreVerdict.RESTORED.value, StoreVerdict.INVENTORY_RESTORED.value
_OPENS: Mapping[str, str] = {_STORE: ADOPT, _INVENTORY: ADOPT_INVENTORY}
_FILLING = frozenset({"filling", "store_filling"})
"""Verdicts that end by themselves, once the store is full."""
_INSPECT: Mapping[str, str] = {
    _STORE: "holdfast diff inventory",
    _INVENTORY: "holdfast inventory adopt",
    StoreVerdict.UNNAMED.value: "holdfast diff inventory",
    StoreVerdict.FILLING.value: "holdfast diff inventory",
}
"""Commands that show which objects a verdict of the syncer concerns; adopt without a choice changes nothing."""
_KINDS_NAMED = 4


@dataclass(frozen=True, slots=True)
class Folded:
    """The problems that verdicts make, and the verdicts whose held changes they cover."""

    problems: Sequence[Problem] = ()
    covered: frozenset[str] = frozenset()

    def others(self, held: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the held changes that no problem of a verdict covers."""
        return [one for one in held if one["gate"] != "identity" or one.get("label", "") not in self.covered]


@dataclass
class _Event:
    """One verdict and the daemons that report it."""

    verdict: FleetVerdict
    fleet: str = ""
    is_leaders: bool = True
    subject: str = ""
    inspect: str = ""
    reporting: Counter[str] = field(default_factory=Counter)
    """Number of daemons that report the same verdict, by kind."""
    conflicts: int = 0
    """Address conflicts that these daemons see: a restored store has claims whose deletes are held."""
    store_went_back: bool = False
    """True under `inventory_restored` if a server finds that the store was restored, too."""

    def covers(self, one: StoreRefusal) -> bool:
        """True if a daemon's verdict is about the same event."""
        mine = self.verdict
        if one.verdict == StoreVerdict.FOREIGN.value:  # the sentence names both fleets
            return mine.name == one.verdict and one.sentence.startswith(mine.sentence)
        if one.fleet and self.fleet and one.fleet != self.fleet:
            return False
        if self.store_went_back and one.verdict == _STORE:
            return True
        return one.verdict == mine.name or {one.verdict, mine.name} <= _FILLING

    def problem(self) -> Problem:
        verdict = self.verdict
        parts, release = [_titled(verdict)], verdict.opens
        if self.store_went_back:
            parts.append("the store was restored, too: the inventory comes first")
            release = f"first {ADOPT_INVENTORY}; then {ADOPT}"
        parts += [*self._held(), *self._reports()]
        if self.conflicts:
            parts.append(f"{self.conflicts:,} address conflict{'s' * (self.conflicts != 1)} seen meanwhile")
        subject = self.subject or ("inventory" if "inventory" in verdict.name else "store")
        is_over_soon = verdict.name in _FILLING
        return Problem(
            subject, "; ".join(parts), self.inspect, release, needs_action=not is_over_soon, known=not is_over_soon
        )

    def _held(self) -> Iterator[str]:
        held = [f"{count:,} {op}{'s' * (count != 1)}" for op, count in sorted(self.verdict.held.items()) if count]
        if held:
            kinds = self.verdict.kinds
            more = ", …" if len(kinds) > _KINDS_NAMED else ""
            yield f"the syncer holds {', '.join(held)} ({', '.join(kinds[:_KINDS_NAMED])}{more})"

    def _reports(self) -> Iterator[str]:
        """Say which daemons share the verdict, where it is more than the one that the problem is about."""
        total = self.reporting.total()
        is_alone = total == 1 and (not self.is_leaders or self.reporting["server"] == 1)
        if total and not is_alone:
            shown = ", ".join(
                f"{count:,} {kind}{'s' * (count != 1)}" for kind, count in self.reporting.items() if count
            )
            yield f"reported by {shown}"


def _titled(verdict: FleetVerdict) -> str:
    """The sentence, with the word for what happened where it has only the evidence."""
    if verdict.name == _STORE and "restored" not in verdict.sentence:
        return f"restored from a backup: {verdict.sentence}"
    return verdict.sentence


def fold(view: StatusView) -> Folded:
    """Return one problem for each event that a verdict is about."""
    event = _leaders(view)
    events = [] if event is None else [event]
    for server in view.servers:
        if server.refuses_store:
            one = StoreRefusal(server.verdict or server.refuses_store, server.refuses_store, server.opens, server.fleet)
            _add(events, one, "server", server.name, "holdfast doctor")
    for agent in view.agents:
        inspect = f"holdfast explain host {agent.host}"
        shared = [_add(events, one, "agent", agent.host, inspect) for one in agent.store_refusals]
        if shared:
            shared[0].conflicts += len(agent.conflicts)
    for name, one in view.balancers.items():
        _add(events, one, "balancer", name, "holdfast balancer status")
    covered = {event.verdict.name for event in events} | {_STORE for event in events if event.store_went_back}
    covered |= _FILLING if covered & _FILLING else set()
    return Folded([event.problem() for event in events], frozenset(covered))


def _add(events: list[_Event], one: StoreRefusal, kind: str, name: str, inspect: str) -> _Event:
    """Count a daemon's verdict with the event that it is about, or as an event of its own; return that event."""
    shared = next((event for event in events if event.covers(one)), None)
    if shared is None:
        alone = FleetVerdict(one.verdict, one.sentence, one.opens)
        shared = _Event(alone, one.fleet, False, name, inspect)
        events.append(shared)
    shared.reporting[kind] += 1
    return shared


def _leaders(view: StatusView) -> _Event | None:
    """Return the verdict of the leader: its syncer's, the one that it recorded in the store, or its elector's."""
    servers = sorted(view.servers, key=lambda server: server.phase != "leading")
    recorded = next((server.recorded for server in servers if server.recorded is not None), None)
    fleet = next((server.fleet for server in servers if server.fleet), "")
    verdict = view.verdict
    if recorded is not None and (verdict is None or verdict.name == recorded.name):
        held, kinds = (verdict.held, verdict.kinds) if verdict else ({}, [])
        verdict = FleetVerdict(recorded.name, recorded.sentence, _OPENS.get(recorded.name, ""), held, kinds)
    inspect = "holdfast doctor" if verdict is None else _INSPECT.get(verdict.name, "holdfast doctor")
    verdict = verdict or _electors(servers)
    if verdict is None:
        return None
    both = verdict.name == _INVENTORY and any(server.verdict == _STORE for server in servers)
    return _Event(verdict, fleet, inspect=inspect, store_went_back=both)


def _electors(servers: Sequence[ElectorView]) -> FleetVerdict | None:
    """Return the verdict of the leader's elector; of any server's while none leads here."""
    asked = [server for server in servers if server.phase == "leading"] or servers
    return next(
        (FleetVerdict(one.verdict, one.refuses_store, one.opens) for one in asked if one.refuses_store and one.verdict),
        None,
    )
