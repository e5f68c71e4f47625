"""How an agent stands: its report to the store, and what it answers when it is asked about itself. Pure.

What is held and what failed is told in the words of the gates and of the kernel. A source without a complete list is
told also when nothing has to wait for it: it keeps what it may no longer want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.model.base.time import Instant
from holdfast.model.fleet.agent_report import TROUBLE_LIMIT, AgentReport, GateReport, ObjectProblem
from holdfast.reconcile import Outstanding, Owned, Synced

AgentStory = Outstanding[ClaimKey, Claim]

UNREGISTERED = "the inventory does not know this host, so no other host has a way to its endpoints"
_REGISTER = "holdfast apply, with this host in the file"
_UNSYNCED = "its source has not delivered a complete list yet"


class SourceSummary(msgspec.Struct, frozen=True):
    """A source, and how much of what is programmed belongs to it. `revision` is None before its first complete list."""

    name: str
    revision: int | None
    since_s: float
    peers: int
    objects: int

    @property
    def sentence(self) -> str:
        """What `holdfast status` says of a source that has not spoken yet."""
        hours, rest = divmod(int(self.since_s), 3_600)
        lasting = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
        return f"unsynced: {self.name}, {lasting}, keeping {self.peers:,} peer{'s' * (self.peers != 1)}"


class AgentDetails(msgspec.Struct, frozen=True):
    """What an agent says of itself to whoever asks it on its own machine."""

    host: str
    dataplane: str
    sources: list[SourceSummary] = []
    registered: bool | None = None
    """None while that cannot be known."""
    waits: str = ""
    """One sentence, while it cannot begin (its journal cannot be opened)."""
    disputes: list[str] = []
    counts: Mapping[str, int] = {}
    pending_deletes: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on both clocks: ages are counted on one and told on the other."""

    now: Instant
    wall: datetime

    def when(self, then: Instant) -> datetime:
        return (self.wall - (self.now - then)).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """All that a report is made of."""

    version: str
    boot_id: str
    host: str = ""
    stories: Sequence[AgentStory] = ()
    sources: Mapping[str, Synced] = field(default_factory=dict)
    present: Mapping[ClaimKey, Owned[Claim]] = field(default_factory=dict)
    pending_deletes: int = 0
    unregistered_since: Instant | None = None
    waits: str = ""
    waits_since: Instant | None = None
    addresses: tuple[str, ...] = ()
    tunnel_macs: tuple[str, ...] = ()
    well: Mapping[str, int] | None = None
    """What `kept` found a moment ago; None to look now."""

    def report(self, at: Moment) -> AgentReport:
        failed = sorted([one for one in self.stories if one.is_failed], key=_age)
        held = sorted([one for one in self.stories if one.is_held], key=_age)
        named = (*failed, *held)[:TROUBLE_LIMIT]  # asked for every second, also while a brake holds half a fleet
        return AgentReport(
            version=self.version,
            boot_id=self.boot_id,
            addresses=self.addresses,
            tunnel_macs=self.tunnel_macs,
            gates=tuple(self._gates(held, at)),
            counts=self.counts(),
            troubles=tuple([_trouble(story, at) for story in named]),
            troubles_left_out=len(failed) + len(held) - len(named),
            pending_deletes=self.pending_deletes,
            synced_revision=self._revision(),
        )

    def counts(self) -> Mapping[str, int]:
        """By state; `peers` and `programmed` are what is well."""
        troubles = {
            "held": sum(one.is_held for one in self.stories),
            "failed": sum(one.is_failed for one in self.stories),
        }
        return {**(self.kept() if self.well is None else self.well), **troubles}

    def kept(self) -> Mapping[str, int]:
        """Looks at all that is programmed, which on a large fleet is nothing to do every second."""
        owners = {owned.value.owner.host for owned in self.present.values()} - {"", self.host}
        return {
            "peers": len(owners),
            "programmed": sum(not owned.value.missing for owned in self.present.values()),
        }

    def keeping(self, now: Instant) -> list[SourceSummary]:
        """Every source with what it is the owner of."""
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
            )
            for name, synced in sorted(self.sources.items())
        ]

    def _gates(self, held: Sequence[AgentStory], at: Moment) -> Iterable[GateReport]:
        if self.waits:
            yield GateReport("journal", self.waits, at.when(self.waits_since or at.now))
        if self.unregistered_since is not None:
            yield GateReport("registration", UNREGISTERED, at.when(self.unregistered_since), _REGISTER)
        unsynced = {name: one for name, one in sorted(self.sources.items()) if one.revision is None}
        for name, one in unsynced.items():
            yield GateReport("sync", _UNSYNCED, at.when(one.since), f"holdfast source forget {name} --reason …", name)
        told: set[tuple[str, str]] = {("sync", _UNSYNCED)} if unsynced else set()
        for story in held:
            closed = story.closed
            assert closed is not None
            if (words := (closed.gate, closed.reason.value)) not in told:
                told.add(words)
                since = at.when(closed.since or story.since)
                yield GateReport(closed.gate, closed.reason.value, since, closed.opens, closed.detail)

    def _revision(self) -> int | None:
        """Up to which revision all sources are known; None while one has not spoken."""
        known = [one.revision for one in self.sources.values()]
        return min([one for one in known if one is not None], default=None) if None not in known else None


def _age(story: AgentStory) -> tuple[Instant, ClaimKey]:
    return story.since, story.change.key


def _trouble(story: AgentStory, at: Moment) -> ObjectProblem:
    key, op = str(story.change.key), story.change.op.name.lower()
    if story.closed is not None and story.is_held:
        return ObjectProblem(key, "held", f"{op}: {story.closed.sentence}", at.when(story.since))
    return ObjectProblem(key, "failed", f"{op}: {story.error}", at.when(story.since))
