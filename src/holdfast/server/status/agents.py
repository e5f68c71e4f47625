"""Agents: from "its report is there" to what the inventory says of a host. Pure.

A report under its lease is an agent that lives, also where its value cannot be read (bad is present, C39). No report
is an agent that does not: at once, not after a timeout. Hosts of the inventory that never reported are listed as well;
a host that neither reports nor is in the inventory is forgotten.
"""

from __future__ import annotations

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
    """What is known of agents: `reports` and `unreadable` as the mirror has them, `hosts` as the inventory has them."""

    kind = AGENT
    plural = "agents"
    dated = True

    def __init__(self, region: Region) -> None:
        self.region = region
        self.prefix = AGENT_STATUS.prefix(region)
        self._start = len(self.prefix)
        self.reports: Mapping[bytes, AgentStatus] = {}
        self.bad: Mapping[bytes, Bad] = {}
        self.hosts: Collection[bytes] = ()

    def decode(self, key: bytes, value: bytes) -> AgentStatus | Bad:
        return AGENT_STATUS.decode(key, value) if is_report_of_agent(key, self._start) else NOT_OURS

    def affected(self, deltas: Sequence[Delta[AgentStatus]]) -> Iterable[bytes]:
        """What has to be looked at again after these changes of reports."""
        return [delta.key for delta in deltas]

    def heard(self, fresh: Iterable[bytes]) -> Collection[str]:
        """Whose report has just come; `fresh` are the keys of live ones."""
        return {self.host(key) for key in fresh}

    def reporting(self) -> int:
        return len(self.reports)

    def keys(self) -> Collection[bytes]:
        """Every key that may be wanted."""
        return {*self.reports, *self.bad, *self.hosts}

    def want(self, key: bytes, last: AgentSeen | None) -> AgentSeen | None:
        report = self.reports.get(key)
        if report is not None and (last is None or key not in self.bad):
            return AgentSeen(True, report.time or "", report.uptime)
        before = last or AgentSeen(False)
        if key in self.bad:
            # What the inventory says, before what this server remembers: the next leader may remember something else.
            return AgentSeen(True, before.reported, before.uptime)
        return AgentSeen(False, before.reported, before.uptime) if key in self.hosts else None

    def lives(self, value: AgentSeen) -> bool:
        return value.alive

    def is_loss(self, old: AgentSeen, new: AgentSeen | None) -> bool:
        """Whether a host is called dead by that."""
        return old.alive and (new is None or not new.alive)

    def routine(self, change: Change[bytes, AgentSeen]) -> bool:
        """A heartbeat: nothing to tell anybody."""
        return change.old is not None and change.new is not None and change.old.value.alive == change.new.value.alive

    def orphans(self) -> Mapping[str, int]:
        return {}  # what is on a host, agents' reports do not tell

    def name(self, key: bytes) -> str:
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


def is_report_of_agent(key: bytes, start: int) -> bool:
    """C30: whose key it is shows before its value is looked at; endpoints' reports stand under the same prefix."""
    return key.endswith(_STATUS) and key.find(b"/", start) == len(key) - len(_STATUS)
