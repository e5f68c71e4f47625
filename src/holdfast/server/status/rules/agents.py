"""Rules for agents: from the report of an agent to the row of its host in the inventory. Pure.

A report under its lease means a live agent, also where its value is unreadable (bad is present, C39). No report means a
dead one: at once, not after a timeout. Hosts of the inventory that never reported have a row as well; a host that
neither reports nor is in the inventory has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.fleet.observed import AGENT, AgentSeen
from holdfast.reconcile import Change
from holdfast.store.mirror.pending import Delta

NOT_OURS = Bad(b"", BadReason.OTHER_KIND, "not the status of an agent")
_STATUS = b"/status"


class AgentRules:
    """State of agents: `reports` and `bad` as the mirror has them, `hosts` as the inventory has them."""

    name = "agent-status"
    kind = AGENT
    plural = "agents"
    blank = AgentSeen(False)
    dated = True

    def __init__(self, region: Region) -> None:
        self.region = region
        self.prefix = AGENT_STATUS.prefix(region)
        self._start = len(self.prefix)
        self.reports: Mapping[bytes, AgentStatus] = {}
        self.bad: Mapping[bytes, Bad] = {}
        self.hosts: Collection[bytes] = ()

    def decode(self, key: bytes, value: bytes) -> AgentStatus | Bad:
        if not is_report_of_agent(key, self._start):
            return NOT_OURS
        name = None if key in self.reports else AGENT_STATUS.parse(key, self.region)  # a known key had a readable name
        if isinstance(name, Bad) and name.reason is BadReason.STRANGE_KEY:
            return name
        return AGENT_STATUS.decode(key, value)

    def affected(self, deltas: Sequence[Delta[AgentStatus]]) -> Iterable[bytes]:
        """Keys to compare again after these changes of reports."""
        return [delta.key for delta in deltas]

    def take_reported(self, fresh: Iterable[bytes]) -> Collection[str]:
        """Hosts whose report has just come; `fresh` are the keys of live changes."""
        return {self.host(key) for key in fresh}

    def reporting(self) -> int:
        """Hosts of the inventory that report: others could dilute or feign a mass loss."""
        return sum(key in self.reports for key in self.hosts)

    def keys(self) -> Collection[bytes]:
        """Every key that may be wanted."""
        return {*self.reports, *self.bad, *self.hosts}

    def want(self, key: bytes, last: AgentSeen | None) -> AgentSeen | None:
        report = self.reports.get(key)
        if report is not None and (last is None or key not in self.bad):
            return AgentSeen(True, report.time or "", report.uptime)
        before = last or AgentSeen(False)
        if key in self.bad:
            # The inventory's row, not the last good report: the next leader may remember another report.
            return AgentSeen(True, before.reported, before.uptime)
        return AgentSeen(False, before.reported, before.uptime) if key in self.hosts else None

    def is_alive(self, value: AgentSeen) -> bool:
        return value.alive

    def is_loss(self, old: AgentSeen, new: AgentSeen | None) -> bool:
        """True if that change declares a host of the inventory dead; the row of any other host just goes."""
        return old.alive and new is not None and not new.alive

    def routine(self, change: Change[bytes, AgentSeen]) -> bool:
        """True if the change is a mere heartbeat."""
        return change.old is not None and change.new is not None and change.old.value.alive == change.new.value.alive

    def orphans(self) -> Mapping[str, int]:
        return {}  # reports of agents do not name endpoints

    def object_name(self, key: bytes) -> str:
        return self.host(key)

    def words(self, value: AgentSeen) -> str:
        return "alive" if value.alive else "silent"

    def in_full(self, value: AgentSeen) -> str:
        return value.words

    def show(self, key: bytes) -> str:
        return f"agent {self.host(key)}"

    def host(self, key: bytes) -> str:
        return key[self._start : -len(_STATUS)].decode(errors="backslashreplace")

    def key(self, host: str) -> bytes:
        return self.prefix + host.encode() + _STATUS

    def states(self, rows: Iterable[AgentSeen]) -> Mapping[str, int]:
        alive = Counter(seen.alive for seen in rows)
        return {"alive": alive[True], "silent": alive[False]}

    def counts(self) -> Mapping[str, int]:
        return {}


def is_report_of_agent(key: bytes, start: int) -> bool:  # protection: C30
    """C30: decided by the key, before the value is decoded; reports of endpoints have the same prefix."""
    return key.endswith(_STATUS) and key.find(b"/", start) == len(key) - len(_STATUS)
