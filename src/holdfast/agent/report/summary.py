"""Summary of the agent: its report to the store, and its answer to `about`. Pure.

Held and failed changes appear with the sentences of the gates and of the kernel. A source without a complete list
appears even when nothing waits for it: it keeps objects that it may no longer want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.model.base.region import shown_source
from holdfast.model.base.time import Instant
from holdfast.model.control.identity import StoreRefusal
from holdfast.model.fleet.agent_report import TROUBLE_LIMIT, AgentReport, GateReport, ObjectProblem
from holdfast.reconcile import Closed, Outstanding, Owned, Synced

OutstandingClaim = Outstanding[ClaimKey, Claim]

UNREGISTERED = "the inventory does not have this host, so no other host can reach its endpoints"
_REGISTER = "holdfast apply, with this host in the file"
_UNSYNCED = "its source has not delivered a complete list yet"


class SourceSummary(msgspec.Struct, frozen=True):
    """Source, with the share of programmed objects it owns. `revision` is None before its first complete list."""

    name: str
    revision: int | None
    since_s: float
    peers: int
    objects: int
    refusal: str = ""
    """Reason for which its store refuses a list."""

    @property
    def sentence(self) -> str:
        """Line of `holdfast status` for a source without a complete list."""
        hours, rest = divmod(int(self.since_s), 3_600)
        lasting = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
        why = f"; {self.refusal}" if self.refusal else ""
        return (
            f"unsynced: {shown_source(self.name)}, {lasting}, keeping {self.peers:,} peer{'s' * (self.peers != 1)}{why}"
        )


class AgentDetails(msgspec.Struct, frozen=True):
    """Details of an agent, for commands on its own machine."""

    host: str
    dataplane: str
    sources: list[SourceSummary] = []
    registered: bool | None = None
    """None while that cannot be known."""
    startup_error: str = ""
    """Reason why it cannot start (its journal cannot be opened)."""
    conflicts: list[str] = []
    counts: Mapping[str, int] = {}
    pending_deletes: int = 0
    store_refusals: list[StoreRefusal] = []
    """Verdicts on stores that hold changes of this host, each with its release."""
    routing: str = "mesh"
    """`agent.routing`."""
    uplinks: Sequence[tuple[int, str]] = ()
    """With `routing: bgp`, devices by which packets to workloads of a family arrive; "" where that is unknown."""
    skipped_per_second: float = 0.0
    """Changes of other kinds that the watch of a source delivers, over the last minute; of the busiest source."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on both clocks: ages are counted on one and shown on the other."""

    now: Instant
    wall: datetime

    def when(self, then: Instant) -> datetime:
        return (self.wall - (self.now - then)).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """Inputs of a report."""

    version: str
    boot_id: str
    host: str = ""
    outstanding: Sequence[OutstandingClaim] = ()
    sources: Mapping[str, Synced] = field(default_factory=dict)
    present: Mapping[ClaimKey, Owned[Claim]] = field(default_factory=dict)
    pending_deletes: int = 0
    unregistered_since: Instant | None = None
    startup_error: str = ""
    startup_error_since: Instant | None = None
    addresses: tuple[str, ...] = ()
    tunnel_macs: tuple[str, ...] = ()
    store_verdict: str = ""
    store_refusals: Sequence[Closed] = ()
    """Verdicts on whole stores; they appear even when nothing waits for them."""
    programmed: Mapping[str, int] | None = None
    """Recent result of `count_programmed`; None to count now."""
    routing: str = ""
    """`agent.routing`."""
    asks_census: bool = False
    """Only the leader's census of this host can prove its list."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Reasons for which stores refuse a list, by source."""

    def report(self, at: Moment) -> AgentReport:
        failed = sorted([one for one in self.outstanding if one.is_failed], key=_age)
        held = sorted([one for one in self.outstanding if one.is_held], key=_age)
        named = (*failed, *held)[:TROUBLE_LIMIT]  # built every second, even while a brake holds half a fleet
        return AgentReport(
            version=self.version,
            boot_id=self.boot_id,
            addresses=self.addresses,
            tunnel_macs=self.tunnel_macs,
            gates=tuple(self._gates(held, at)),
            counts=self.counts(),
            troubles=tuple([_problem(outstanding, at) for outstanding in named]),
            troubles_left_out=len(failed) + len(held) - len(named),
            pending_deletes=self.pending_deletes,
            store_verdict=self.store_verdict,
            routing=self.routing,
            asks_census=self.asks_census,
            synced_revision=self._revision(),
        )

    def counts(self) -> Mapping[str, int]:
        """Counts by state; `peers` and `programmed` are what is well."""
        problems = {
            "held": sum(one.is_held for one in self.outstanding),
            "failed": sum(one.is_failed for one in self.outstanding),
        }
        return {**(self.count_programmed() if self.programmed is None else self.programmed), **problems}

    def count_programmed(self) -> Mapping[str, int]:
        """Walk over everything that is programmed, which on a large fleet is too much for every second."""
        owners = {owned.value.owner.host for owned in self.present.values()} - {"", self.host}
        return {
            "peers": len(owners),
            "programmed": sum(not owned.value.missing for owned in self.present.values()),
        }

    def by_source(self, now: Instant) -> list[SourceSummary]:
        """Every source with the objects it owns."""
        objects: Counter[str] = Counter()
        peers: dict[str, set[str]] = {}
        for owned in self.present.values():
            objects[owned.source] += 1
            peers.setdefault(owned.source, set()).add(owned.value.owner.host)
        return [
            SourceSummary(
                name,
                synced.revision,
                round((now - synced.since).total_seconds(), 3),
                len(peers.get(name, set()) - {"", self.host}),
                objects[name],
                self.refusals.get(name, ""),
            )
            for name, synced in sorted(self.sources.items())
        ]

    def _gates(self, held: Sequence[OutstandingClaim], at: Moment) -> Iterable[GateReport]:
        if self.startup_error:
            yield GateReport("journal", self.startup_error, at.when(self.startup_error_since or at.now))
        if self.unregistered_since is not None:
            yield GateReport("registration", UNREGISTERED, at.when(self.unregistered_since), _REGISTER)
        unsynced = {name: one for name, one in sorted(self.sources.items()) if one.revision is None}
        for name, one in unsynced.items():
            why = f"{_UNSYNCED}: {self.refusals[name]}" if self.refusals.get(name) else _UNSYNCED
            yield GateReport("sync", why, at.when(one.since), one.opened_by(name, at.now), name)
        shown: set[tuple[str, str]] = {("sync", _UNSYNCED)} if unsynced else set()
        refusals = [(one, one.since or at.now) for one in self.store_refusals]
        refusals += [(one.closed, one.closed.since or one.since) for one in held if one.closed is not None]
        for closed, since in refusals:
            if (label := (closed.gate, closed.reason.value)) not in shown:
                shown.add(label)
                yield GateReport(closed.gate, closed.reason.value, at.when(since), closed.opens, closed.detail)

    def _revision(self) -> int | None:
        """Revision up to which all sources are known; None while one is not complete."""
        known = [one.revision for one in self.sources.values()]
        return min([one for one in known if one is not None], default=None) if None not in known else None


def _age(outstanding: OutstandingClaim) -> tuple[Instant, ClaimKey]:
    return outstanding.since, outstanding.change.key


def _problem(outstanding: OutstandingClaim, at: Moment) -> ObjectProblem:
    key, op = str(outstanding.change.key), outstanding.change.op.name.lower()
    if outstanding.closed is not None and outstanding.is_held:
        return ObjectProblem(key, "held", f"{op}: {outstanding.closed.sentence}", at.when(outstanding.since))
    return ObjectProblem(key, "failed", f"{op}: {outstanding.error}", at.when(outstanding.since))
